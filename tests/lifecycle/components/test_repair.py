"""Windows that are repaired by a hold: tombstones, splits under transfers, and what becomes of locks over them."""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.cache.components.base import Span
from stagehold.cache.components.full import FULL
from stagehold.cache.errors import DeadReceipt, ReceiptRefused
from stagehold.lifecycle.splicing import lacking
from stagehold.specs.hold import HoldState
from stagehold.specs.write import WriteState


def ready(h, rid: str, tokens, *, live: int = 4, end: int = 12, **bring):
    """A request whose hold of pages [live, end) is ready; the tree has the first `live` pages and their window."""
    h.grow(tokens, live, **({"swa": min(3, live)} | bring))
    h.put_all(tokens, 0, end)
    handle = h.arrive(rid, tokens)
    h.until_state(handle, RequestState.STAGED)
    h.until(lambda: h.hold_of(handle).state is HoldState.READY)
    return handle


def test_an_anchor_that_lost_its_window_is_still_an_anchor(mixed):
    """The hold brings the window that its end needs. Tokens before the claim are nobody's: the books stay even."""
    h = mixed("w")
    tokens = h.prompt(14)
    a = ready(h, "a", tokens)
    h.tombstone(tokens, 1, 4, "swa")
    assert 0 == h.core.tree.joint_match(h.chain(tokens))
    admission = h.admit(a)
    assert (12 * 16, 0, 12 * 16) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens
    )  # fmt: skip
    h.tick()
    assert (8 * 16, 8 * 16, {}) == (h.engine.stats().queried, h.engine.stats().spliced, h.engine.stats().losses)
    assert [h.computed_byte(FULL, page) for page in range(4)] == h.shown(tokens, 0, 4)


@pytest.mark.parametrize(("room", "hit"), [(9, 0), (10, 12), (11, 12), (12, 14)])
def test_what_lies_behind_the_end_is_used_where_there_is_room_to_protect_it(mixed, room, hit):
    """A sibling has all of the window but page 11, and the tree goes on to page 14 behind it.

    The request may take 3 + 4 + 1 slots behind either boundary, and page 11: 9, and one stays free. To begin at 14
    it protects pages 12 and 13 besides, while pages 9 to 11 stay under the copy.
    """
    locked = 3
    h = mixed("w", parts={"device": room + locked})
    tokens = h.prompt(20)
    a = ready(h, "a", tokens)
    h.grow(tokens, 14, swa=6)
    h.tombstone(tokens, 11, 12, "swa")
    receipt = h.core.tree.lock(h.chain(tokens), 11)
    assert room == h.core.room_of(h.core.stocks.by_name["swa"])
    admission = h.visit(a)
    assert (hit > 0, hit * 16) == (admission.admitted, admission.hit_tokens)
    h.tick()
    h.core.tree.unlock(receipt)
    if hit:
        assert [h.stored_byte("swa", 11)] == h.shown(tokens, 11, 12, "swa")
        for _ in range(2):
            h.engine.extend(a, 64)
            h.engine.publish(a, h.machine(a).data.n_tokens)
            h.tick()


def test_a_repair_leaves_a_running_request_its_window(mixed):
    """A window that gates no match may begin behind a hole. Who goes on from there loses nothing when it is filled."""
    h = mixed("w", parts={"gates": False, "device": 20})
    tokens = h.prompt(14)
    h.believe(tokens, 9, 12, "swa")
    a = ready(h, "a", tokens)
    h.grow(tokens, 11, swa=1)
    other = h.arrive("other", h.prompt(14, 2, shared=11))
    assert 11 * 16 == h.admit(other).hit_tokens
    mine = h.engine.page_slots(other, "swa")[10]
    assert [h.computed_byte("swa", 10)] == h.bytes_at("swa", [mine])
    h.tick()
    assert 12 * 16 == h.admit(a).hit_tokens
    assert [h.stored_byte("swa", 9), h.computed_byte("swa", 10), h.stored_byte("swa", 11)] == h.shown(
        tokens, 9, 12, "swa"
    )  # fmt: skip
    h.tick()
    h.engine.abort(a)
    h.core.tree.evict(20, "swa")
    assert [mine] == h.core.tree.slots(h.chain(tokens), 10, 11, "swa")
    assert h.core.tree.pools["swa"].is_out(mine)


def test_only_holes_inside_the_window_are_filled(mixed):
    """Those before it are nobody's business; what is whole inside it stays as it is."""
    h = mixed("w")
    tokens = h.prompt(14)
    a = ready(h, "a", tokens)
    h.grow(tokens, 14, swa=7)
    h.tombstone(tokens, 11, 12, "swa")
    assert [Span(0, 1), Span(4, 7), Span(11, 12)] == h.core.tree.missing(h.chain(tokens), 0, 13, "swa")
    assert [Span(11, 12)] == lacking(h.core, h.hold_of(a).data, "swa")
    free = h.core.tree.pools["swa"].free_count
    assert 14 * 16 == h.admit(a).hit_tokens
    assert 1 == free - h.core.tree.pools["swa"].free_count
    assert [Span(0, 1), Span(4, 7)] == h.core.tree.missing(h.chain(tokens), 0, 13, "swa")
    wanted = [h.computed_byte("swa", page) for page in range(7, 14)]
    wanted[4] = h.stored_byte("swa", 11)
    assert wanted == h.shown(tokens, 7, 14, "swa")


def computed(h, rid: str, tokens) -> None:
    """A request that runs now, without waiting for the store; its pages have a sibling's bytes."""
    handle = h.arrive(rid, tokens)
    h.admit(handle)
    data = h.machine(handle).data
    while data.n_tokens < data.prompt_tokens:
        h.engine.extend(handle, min(64, data.prompt_tokens - data.n_tokens))
        for name, slots in ((FULL, data.slots), ("swa", data.shares["swa"].slots)):
            for page in range(data.published, len(slots)):
                h.core.bytes[name].device.tensor[:, slots[page]] = h.computed_byte(name, page)
        h.engine.publish(handle, data.n_tokens)
    h.engine.finish(handle)


def test_a_repair_under_a_queued_write_and_a_pin_leaves_both_right(mixed):
    """The window is attached by splits in the middle of pages that are to be written, behind another hold's anchor."""
    h = mixed("w", pin_fraction=0.5)
    tokens, others = h.prompt(12), h.prompt(12, 2, shared=4)
    a = ready(h, "a", tokens)
    b = ready(h, "b", others)
    assert 4 == h.core.tree.pinned
    for page, name in [(page, name) for page in range(12) for name in (FULL, "swa")]:
        h.store.drop(h.names(tokens, page, page + 1, name)[0])
    h.core.beliefs.forget()
    computed(h, "r", tokens)
    assert any(write.state is WriteState.QUEUED for write in h.core.writes.values())
    h.tombstone(tokens, 8, 12, "swa")
    assert 12 * 16 == h.admit(a).hit_tokens
    assert [Span(8, 9)] == h.core.tree.missing(h.chain(tokens), 4, 12, "swa")
    h.core.tree.check()
    h.until(lambda: not h.core.writes)
    assert [h.computed_byte(FULL, page) for page in range(4, 12)] == stored(h, tokens, 4, 12, FULL)
    assert [h.stored_byte("swa", page) for page in range(9, 12)] == h.shown(tokens, 9, 12, "swa")
    wrote = stored(h, tokens, 4, 12, "swa")
    right = [h.computed_byte("swa", page) for page in range(4, 8)]
    right += [None, *(h.stored_byte("swa", page) for page in range(9, 12))]
    assert all(byte in (None, good) for byte, good in zip(wrote, right, strict=True))
    assert any(byte is not None for byte in wrote)
    assert 12 * 16 == h.admit(b).hit_tokens
    assert [h.computed_byte(FULL, page) for page in range(4)] == h.shown(others, 0, 4)
    assert [h.stored_byte(FULL, page) for page in range(4, 12)] == h.shown(others, 4, 12)
    assert 0 == h.core.tree.pinned


def stored(h, tokens, first: int, last: int, component: str) -> list[int | None]:
    """The byte that each page in the store is full of; None for one that is not there."""
    found: list[int | None] = []
    for name in h.names(tokens, first, last, component):
        raw = h.store.medium.read(name)
        found.append(None if raw is None else raw[-1])
    return found


def test_two_holds_repair_one_hole_in_one_pass(mixed):
    """The second one loads what the first has left; its plan's lock died under the first one's repair."""
    h = mixed("w")
    tokens, longer = h.prompt(12), h.prompt(14, 2, shared=12)
    h.grow(tokens, 4, swa=3)
    h.put_all(longer, 0, 13)
    b = h.arrive("b", longer)
    h.tick(3)
    a = ready(h, "a", tokens)
    h.grow(tokens, 12)
    plans = [h.engine.select(handle, 1000) for handle in (a, b)]
    free = h.core.tree.pools["swa"].free_count
    assert [12 * 16, 13 * 16] == [h.engine.commit(plan).hit_tokens for plan in plans]
    assert 4 == free - h.core.tree.pools["swa"].free_count
    assert [h.stored_byte("swa", page) for page in range(9, 13)] == h.shown(longer, 9, 13, "swa")
    h.core.tree.check()
    h.tick()
    assert (9 * 16, {"covered": 8 * 16}) == (h.engine.stats().spliced, h.engine.stats().losses)
    for handle in (a, b):
        h.engine.finish(handle)


def test_a_lock_over_a_hole_is_dead_once_the_hole_is_filled(mixed):
    """It is refused, whether it is given back once or twice; the window may be given up, and the rest is given back."""
    h = mixed("w")
    tree, tokens = h.core.tree, h.prompt(14)
    a = ready(h, "a", tokens)
    h.grow(tokens, 10)
    over_hole, elsewhere = tree.lock(h.chain(tokens), 10), tree.lock(h.chain(tokens), 4)
    h.admit(a)
    for _ in range(2):
        with pytest.raises(DeadReceipt, match="attached anew"):
            tree.unlock(over_hole)
    tree.unlock(over_hole, forfeit=True)
    with pytest.raises(ReceiptRefused):
        tree.unlock(over_hole, forfeit=True)
    with pytest.raises(ReceiptRefused):
        tree.unpin(elsewhere)
    with pytest.raises(ReceiptRefused):
        tree.release_span(elsewhere)
    tree.unlock(elsewhere)
    with pytest.raises(ReceiptRefused):
        tree.unlock(elsewhere)
    tree.check()
