"""Admission counts every pool that it will touch: the numbers derived by hand, and what is decided on either side.

Unless said otherwise pages have 16 tokens, windows 3 pages, chunks 4, and a request of 14 pages and a token, which may
answer with one more, fills 15 pages in all.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from stagehold import AdmissionOutcome, Plan, RequestState
from stagehold.cache.components.base import Span
from stagehold.lifecycle.splicing import lacking
from stagehold.specs.hold import HoldState

ADMITTED, DEFERRED = AdmissionOutcome.ADMITTED, AdmissionOutcome.DEFERRED
NO_ROOM, UNFIT = AdmissionOutcome.NO_ROOM, AdmissionOutcome.UNFIT


@contextmanager
def room(h, name: str, slots: int):
    """Others have all but so many slots of a component's pool."""
    stock = h.core.stocks.by_name[name]
    taken = h.core.allocate(stock, h.core.room_of(stock) - slots)
    assert slots == h.core.room_of(stock)
    yield
    stock.device.free(taken)


def planned(mixed, kinds: str = "ws", *, new: int = 1, live: int = 4, **settings):
    """A request that is about to be joined to its hold of pages [4, 12), with the plan for it."""
    h = mixed(kinds, **settings)
    tokens = h.prompt(14)
    h.grow(tokens, 4, **({"swa": 3} if "w" in kinds else {}), **({"state": 1} if "s" in kinds else {}))
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens, new)
    h.tick(3)
    assert HoldState.READY is h.hold_of(a).state
    h.grow(tokens, live)
    plan = h.engine.select(a, 1000)
    assert isinstance(plan, Plan)
    return h, a, plan


def outcome(h, plan, name: str, slots: int) -> AdmissionOutcome:
    with room(h, name, slots):
        return h.engine.commit(plan).outcome


@pytest.mark.parametrize(("more", "said"), [(-1, DEFERRED), (0, ADMITTED), (1, ADMITTED)])
def test_pages_of_full_attention_fit_exactly(mixed, more, said):
    """15 in all, of which the anchor has 4, under the lock of the visit: 11."""
    h, _, plan = planned(mixed)
    assert said is outcome(h, plan, "full", 11 + more)


WINDOW_NEEDS = [
    # Behind 12 pages 3 are left to compute: a window of 3, a chunk of 3, and one for what begins in a page.
    # The 3 of the hold's window come on top.
    ({}, {}, 3 + 3 + 1 + 3),
    # The answer fills 6 pages; its window is no larger than the chunk.
    ({"new": 100}, {}, 3 + 3 + 1 + 3),
    # Windows of 5: no more than 3 pages of the prompt, 5 of the answer, one, and the hold's 5.
    ({"new": 100}, {"window": 80}, 3 + 5 + 1 + 5),
    ({}, {"window": 80}, 3 + 3 + 1 + 5),
    # A chunk of 1.
    ({"chunk": 1}, {}, 3 + 1 + 1 + 3),
    # A window of one page.
    ({}, {"window": 9}, 1 + 3 + 1 + 1),
    # Siblings have published FULL: the window is still all of the hold's.
    ({"live": 10}, {}, 3 + 3 + 1 + 3),
    ({"live": 12}, {}, 3 + 3 + 1 + 3),
]


@pytest.mark.parametrize(("more", "said", "ring"), [
    (-1, DEFERRED, False), (0, DEFERRED, False), (1, ADMITTED, False),
    (-1, DEFERRED, True), (0, ADMITTED, True), (1, ADMITTED, True),
])  # fmt: skip
@pytest.mark.parametrize("case", WINDOW_NEEDS)
def test_slots_of_a_window_leave_one_free_but_for_a_ring(mixed, case, more, said, ring):
    """The reservation by window arithmetic, and the transient slots that the splice fills."""
    settings, parts, need = case
    h, _, plan = planned(mixed, parts={"ring": ring, **parts}, **settings)
    assert said is outcome(h, plan, "swa", need + more)


@pytest.mark.parametrize(("more", "said"), [(-1, DEFERRED), (0, DEFERRED), (1, ADMITTED)])
def test_slots_of_a_checkpoint(mixed, more, said):
    """One to compute in, and one for the checkpoint that the hold brings; one stays free."""
    h, _, plan = planned(mixed)
    assert said is outcome(h, plan, "state", 2 + more)


def test_what_siblings_brought_is_not_counted_again(mixed):
    """Boundary 11 is whole: only page 11 of the window is loaded. The lock of the visit has paid for the rest."""
    for more, said in ((0, DEFERRED), (1, ADMITTED)):
        h = mixed("w")
        tokens = h.prompt(14)
        h.grow(tokens, 4, swa=3)
        h.put_all(tokens, 0, 12)
        a = h.arrive("a", tokens)
        h.tick(3)
        h.grow(tokens, 11, swa=3)
        plan = h.engine.select(a, 1000)
        assert [Span(11, 12)] == lacking(h.core, h.hold_of(a).data, "swa")
        assert said is outcome(h, plan, "swa", 3 + 3 + 1 + 1 + more)


def test_hits_of_many_windows_load_one(mixed):
    """8 pages are hit, the last 3 of them with their window: nothing is taken outside of what was counted."""
    h, a, plan = planned(mixed)
    free = {name: pool.free_count for name, pool in h.core.tree.pools.items()}
    with room(h, "swa", 3 + 3 + 1 + 3 + 1):
        assert h.engine.commit(plan).admitted
        left = h.core.room_of(h.core.stocks.by_name["swa"])
    assert 1 + 3 == left, "what nobody had, and the window of the anchor, which nobody protects any more"
    assert {"full": 8, "swa": 3, "state": 2} == {
        name: free[name] - pool.free_count for name, pool in h.core.tree.pools.items()
    }
    assert 7 == h.machine(a).data.shares["swa"].reserve


@pytest.mark.parametrize("name", ["swa", "state"])
def test_while_others_run_a_hold_waits_without_counting(mixed, name):
    """NO_ROOM; idle, a deferral is counted."""
    h, a, plan = planned(mixed)
    other = h.arrive("other", h.prompt(2, 9))
    h.engine.release(plan)
    h.admit(other)
    assert NO_ROOM is outcome(h, h.engine.select(a, 1000), name, 1)
    assert (0, RequestState.STAGED) == (h.machine(a).defers, h.engine.state_of(a))


@pytest.mark.parametrize("name", ["full", "swa", "state"])
def test_a_refused_commit_takes_nothing(mixed, name):
    """Hold, bytes and every pool are as they were."""
    h, a, plan = planned(mixed)
    h.engine.release(plan)
    before = {pool: (one.free_count, h.core.tree.evictable_slots(pool)) for pool, one in h.core.tree.pools.items()}
    assert DEFERRED is outcome(h, h.engine.select(a, 1000), name, 1)
    assert before == {
        pool: (one.free_count, h.core.tree.evictable_slots(pool)) for pool, one in h.core.tree.pools.items()
    }
    assert HoldState.READY is h.hold_of(a).state
    h.tick()
    assert h.admit(a).hit_tokens == 12 * 16


# -- without a hold -----------------------------------------------------------------------------------------------


def live(mixed, pages: int = 12, new: int = 1, **bring):
    h = mixed("ws", store=None)
    tokens = h.prompt(14)
    h.grow(tokens, pages, **{"swa": 3, "state": 1, **bring})
    a = h.arrive("a", tokens, new)
    h.tick()
    return h, tokens, a


BARE_NEEDS = [
    ("full", 15, [(-1, NO_ROOM), (0, ADMITTED), (1, ADMITTED)]),  # 3 to fill, 12 that the lock takes from the evictable
    ("swa", 3 + 3 + 1 + 3, [(-1, NO_ROOM), (0, NO_ROOM), (1, ADMITTED)]),  # the last 3: the window of the hit
    ("state", 1 + 1, [(-1, NO_ROOM), (0, NO_ROOM), (1, ADMITTED)]),  # the checkpoint that it goes on from
]


@pytest.mark.parametrize(
    ("name", "need", "more", "said"), [(name, need, *row) for name, need, rows in BARE_NEEDS for row in rows]
)
def test_a_hit_on_the_device_costs_what_its_lock_protects(mixed, name, need, more, said):
    """Slots that could be evicted until then were somebody's room."""
    h, _, a = live(mixed)
    assert said is outcome(h, h.engine.select(a, 1000), name, need + more)


def test_a_hit_ends_where_all_components_can_go_on_from(mixed):
    """FULL reaches 12, and the window or the checkpoint there is gone: 12 pages are live, and none is a hit."""
    for name, first in (("swa", 11), ("state", 11)):
        h, tokens, a = live(mixed)
        h.tombstone(tokens, first, 12, name)
        plan = h.engine.select(a, 1000)
        assert (12, 0) == (h.live(tokens), plan.live_pages)
        assert 0 == h.engine.commit(plan).hit_tokens


@pytest.mark.parametrize(("slots", "said"), [(11, UNFIT), (12, ADMITTED)])
def test_a_delivery_of_nothing_is_selected_again_by_the_joint_match(mixed, slots, said):
    """Behind page 4, where everything can be gone on from: a window of 3, a chunk of 4, one, and the hit's window of 3.

    The visit had locked page 10, and nothing of that window.
    """
    h, a, plan = planned(mixed, live=10, engine_options={"deliver": lambda _hold, _live, _promised: 0})
    with room(h, "swa", slots):
        admission = h.engine.commit(plan)
    assert (said, 4 * 16 if said is ADMITTED else 0) == (admission.outcome, admission.hit_tokens)
    if said is ADMITTED:
        assert 8 == h.machine(a).data.shares["swa"].reserve


# -- joint and FULL-only matches ------------------------------------------------------------------------------------


def test_what_full_attention_covers_alone_is_fetched_without_it(mixed):
    """The prefix is live to its end, and boundary 4 is the last with a window: the hold has 8 pages and stages none."""
    h = mixed("ws")
    tokens = h.prompt(14)
    h.grow(tokens, 4, swa=3, state=1)
    h.grow(tokens, 14)
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens)
    h.tick(3)
    hold = h.hold_of(a).data
    assert (4, 12, 12, []) == (hold.start, hold.last, hold.base, hold.staging)
    assert {"swa": 3, "state": 1} == {name: len(one.staging) for name, one in hold.parts.items()}
    free = h.core.device.free_count
    admission = h.admit(a)
    assert (12 * 16, 4 * 16, 8 * 16, free) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens, h.core.device.free_count
    )  # fmt: skip
    h.tick()
    assert (8 * 16, {}) == (h.engine.stats().spliced, h.engine.stats().losses)


def test_an_anchor_is_measured_by_full_attention_and_a_hit_by_all(mixed):
    """The window of the anchor is gone, so that nothing is a hit; the anchor stands, so that nothing is lost."""
    h = mixed("w")
    tokens = h.prompt(14)
    h.grow(tokens, 4, swa=3)
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.tombstone(tokens, 1, 4, "swa")
    plan = h.engine.select(a, 1000)
    assert (0, 12, RequestState.ANCHOR_LOCKED) == (plan.live_pages, plan.promised_pages, h.engine.state_of(a))
    assert 12 * 16 == h.engine.commit(plan).store_hit_tokens
