"""Windows that are repaired by a hold: tombstones, splits under transfers, and what becomes of locks over them."""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.cache.components.full import FULL
from stagehold.specs.hold import HoldState


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
