"""Windows that are repaired by a hold: tombstones, splits under transfers, and what becomes of locks over them."""

from __future__ import annotations

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
