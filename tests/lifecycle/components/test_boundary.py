"""The splice at its boundaries: what is copied, filled, booked and hit, wherever the live prefix has got to.

A hold of pages [4, 12) is ready when siblings move the FULL match to each point of interest. Who wrote a page is seen
by its bytes: another server's in the store, a sibling's on the device.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagehold import Plan, RequestState, Skip
from stagehold.cache.components.base import Span
from stagehold.cache.components.full import FULL
from stagehold.lifecycle.splicing import lacking
from stagehold.specs.hold import HoldState

MATCHED, END, PROMPT = 4, 12, 14

WINDOWS = [(1, 1), (1, 3)] + [(page, size) for page in (4, 16, 64) for size in (page // 2, page, 3 * page - 1)]
"""(page size, window) in tokens: below a page, a page, above one and no multiple of it."""

SETS = [("", page, 0) for page in (1, 4, 16, 64)] + [("s", page, 0) for page in (1, 4, 16, 64)]
SETS += [(kinds, page, window) for kinds in ("w", "ws") for page, window in WINDOWS]


def in_pages(page: int, window: int) -> int:
    return -(-window // page)


def anchored(mixed, kinds: str, page: int, window: int):
    """An engine in which the hold of [4, 12) is ready behind an anchor that can be gone on from."""
    h = mixed(kinds, page=page, parts={"window": window or page})
    tokens = h.prompt(PROMPT)
    bring = {}
    if "w" in kinds:
        bring["swa"] = min(MATCHED, in_pages(page, window))
    if "s" in kinds:
        bring["state"] = 1
    h.grow(tokens, MATCHED, **bring)
    h.put_all(tokens, 0, END)
    a = h.arrive("a", tokens)
    h.tick(3)
    assert HoldState.READY is h.hold_of(a).state
    assert (MATCHED, END) == (h.hold_of(a).data.start, h.hold_of(a).data.last)
    return h, tokens, a


def move_live(h, tokens, live: int) -> None:
    """Siblings publish FULL alone up to `live`, or the end of the anchor is evicted."""
    if live < MATCHED:
        h.shrink(tokens, live)
    else:
        h.grow(tokens, live)
    assert live == h.live(tokens)


def select_twice(h, a):
    """Selected, released and selected again: equal but for the number of the visit."""
    first = h.engine.select(a, 100_000)
    if isinstance(first, Skip):
        return first
    h.engine.release(first)
    second = h.engine.select(a, 100_000)
    assert replace(first, serial=0) == replace(second, serial=0)
    return second


def written(h, tokens, component: str, start: int, end: int) -> list[str]:
    """Who wrote each of these pages: `store` or `sibling`."""
    known = {}
    for page in range(start, end):
        known[h.stored_byte(component, page)], known[h.computed_byte(component, page)] = "store", "sibling"
    return [known[byte] for byte in h.shown(tokens, start, end, component)]


def points(kinds: str, page: int, window: int) -> list[int]:
    begin = END - in_pages(page, window) if "w" in kinds else END - 1
    return sorted({MATCHED - 1, MATCHED, MATCHED + 1, begin, END - 1, END, END + 1})


TABLE = [(kinds, page, window, live) for kinds, page, window in SETS for live in points(kinds, page, window)]


def name_of(row) -> str:
    kinds, page, window, live = row
    return f"full{kinds}-page{page}-window{window}-live{live}"


@pytest.mark.parametrize("row", TABLE, ids=name_of)
def test_full_pages_of_siblings_are_never_loaded_again(mixed, row):
    """Siblings have published pages of full attention, and left windows and checkpoints behind them out."""
    kinds, page, window, live = row
    h, tokens, a = anchored(mixed, kinds, page, window)
    move_live(h, tokens, live)
    if live < MATCHED:
        return lost(h, a)
    if live >= END and not kinds:
        return covered(h, tokens, a, live)
    joint = MATCHED if kinds else live
    plan = select_twice(h, a)
    assert (RequestState.ANCHOR_LOCKED, joint, END) == (
        h.engine.state_of(a), plan.live_pages, plan.promised_pages
    )  # fmt: skip
    before = {name: pool.free_count for name, pool in h.core.tree.pools.items()}
    admission = h.engine.commit(plan)
    assert admission.admitted
    low = min(live, END)
    assert ["sibling"] * low + ["store"] * (END - low) == written(h, tokens, FULL, 0, END)
    taken = {FULL: END - low}
    if "w" in kinds:
        begin = END - in_pages(page, window)
        assert ["store"] * (END - begin) == written(h, tokens, "swa", begin, END)
        assert [] == h.core.tree.missing(h.chain(tokens), begin, END, "swa")
        taken["swa"] = END - begin
    if "s" in kinds:
        assert ["store"] == written(h, tokens, "state", END - 1, END)
        taken["state"] = 2  # one loaded, one to compute in
    assert taken == {name: before[name] - pool.free_count for name, pool in h.core.tree.pools.items()}
    hit = END * page
    assert (hit, joint * page, hit - joint * page) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens
    )  # fmt: skip
    h.tick()
    booked = h.engine.stats()
    queried = (END - MATCHED) * page
    assert (queried, (END - joint) * page) == (booked.queried, booked.spliced)
    assert ({"covered": queried - booked.spliced} if booked.spliced < queried else {}) == booked.losses
    own = h.engine.page_slots(a)
    assert own == admission.slots
    return None


def lost(h, a) -> None:
    """The anchor is shorter than what the hold was fetched behind: its bytes are of no use, and the end is known."""
    skip = h.engine.select(a, 100_000)
    assert isinstance(skip, Plan | Skip)
    if isinstance(skip, Plan):
        h.engine.release(skip)
    h.tick()
    assert 1 == h.taken("request.staged.evaluate.LOST")
    assert {"lost": (END - MATCHED) * h.config.page_size} == h.engine.stats().losses
    assert 1 == h.taken("request.anchor_lost.resolve.RETRY")


def covered(h, tokens, a, live: int) -> None:
    """Everything is there: the hold is given up, once, and nothing is copied."""
    plan = select_twice(h, a)
    assert (RequestState.COVERED, live) == (h.engine.state_of(a), plan.promised_pages)
    admission = h.engine.commit(plan)
    page = h.config.page_size
    assert (live * page, live * page, 0) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens
    )  # fmt: skip
    h.tick()
    assert 1 == h.taken("request.staged.evaluate.COVERED")
    assert {"covered": (END - MATCHED) * page} == h.engine.stats().losses
    assert ["sibling"] * live == written(h, tokens, FULL, 0, live)


WHOLE = [row for row in TABLE if row[0] and row[3] > MATCHED]


@pytest.mark.parametrize("row", WHOLE, ids=name_of)
def test_what_siblings_published_whole_moves_the_joint_match(mixed, row):
    """It is covered from the end on, and before it what the siblings brought is not loaded again."""
    kinds, page, window, live = row
    h, tokens, a = anchored(mixed, kinds, page, window)
    size = in_pages(page, window)
    h.grow(tokens, live, **({"swa": min(size, live - MATCHED)} if "w" in kinds else {}), **(
        {"state": 1} if "s" in kinds else {}
    ))  # fmt: skip
    if live >= END:
        covered(h, tokens, a, live)
        return
    plan = select_twice(h, a)
    assert (RequestState.ANCHOR_LOCKED, live) == (h.engine.state_of(a), plan.live_pages)
    admission = h.engine.commit(plan)
    assert ["sibling"] * live + ["store"] * (END - live) == written(h, tokens, FULL, 0, END)
    if "w" in kinds:
        begin = END - size
        there = max(begin, live)
        assert ["sibling"] * (there - begin) + ["store"] * (END - there) == written(h, tokens, "swa", begin, END)
    if "s" in kinds:
        assert ["store"] == written(h, tokens, "state", END - 1, END)
    assert (END * page, (END - live) * page) == (admission.hit_tokens, admission.store_hit_tokens)
    h.tick()
    booked = h.engine.stats()
    assert ((END - live) * page, {"covered": (live - MATCHED) * page}) == (booked.spliced, booked.losses)


@pytest.mark.parametrize(("page", "window"), [row for row in WINDOWS if in_pages(*row) > 1])
@pytest.mark.parametrize("kinds", ["w", "ws"])
def test_a_repaired_window_may_make_more_usable_than_the_hold_brought(mixed, kinds, page, window):
    """A sibling went on behind the end, over a hole that the hold fills."""
    h, tokens, a = anchored(mixed, kinds, page, window)
    begin = END - in_pages(page, window)
    h.grow(tokens, END + 1, swa=END + 1 - begin, **({"state": 1} if "s" in kinds else {}))
    h.tombstone(tokens, END - 1, END, "swa")
    assert MATCHED == h.core.tree.joint_match(h.chain(tokens))
    plan = select_twice(h, a)
    admission = h.engine.commit(plan)
    assert (END + 1) * page == admission.hit_tokens
    assert (END + 1 - MATCHED) * page == admission.store_hit_tokens
    assert [*["sibling"] * (END - 1 - begin), "store", "sibling"] == written(h, tokens, "swa", begin, END + 1)
    assert ["sibling"] * (END + 1) == written(h, tokens, FULL, 0, END + 1)
    h.tick()
    assert ((END - MATCHED) * page, {}) == (h.engine.stats().spliced, h.engine.stats().losses)


@pytest.mark.parametrize("kinds", ["", "w", "s", "ws"])
def test_what_is_missing_is_what_the_protocol_says(mixed, kinds):
    """The hold brings whole windows and one checkpoint; the tree says what it lacks of them."""
    h, tokens, a = anchored(mixed, kinds, 16, 48)
    h.grow(tokens, 10)
    hold = h.hold_of(a).data
    assert {"": {}, "w": {"swa": 9}, "s": {"state": 11}, "ws": {"swa": 9, "state": 11}}[kinds] == {
        name: one.first for name, one in hold.parts.items()
    }
    assert ([Span(9, 12)] if "w" in kinds else []) == lacking(h.core, hold, "swa")
    assert ([Span(11, 12)] if "s" in kinds else []) == lacking(h.core, hold, "state")
    assert (4, [*range(4, 12)]) == (hold.base, [byte - 1 for byte in staged_bytes(h, hold.staging)])


def staged_bytes(h, pages: list[int]) -> list[int]:
    return [set(h.core.bytes[FULL].page(page)).pop() for page in pages]
