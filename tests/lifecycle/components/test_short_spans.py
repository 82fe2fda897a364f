"""A span that is shorter than the window in front of its end."""

from __future__ import annotations

import pytest

from stagehold.specs.hold import HoldState


@pytest.mark.parametrize("grown", [10, 11])
def test_a_window_that_begins_before_the_span_is_brought_whole(mixed, grown):
    """A sibling computes pages while the store is asked: what is left to fetch is less than the window of 3."""
    h = mixed("w")
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens)
    h.tick()
    h.grow(tokens, grown, swa=3)
    h.tick(2)
    hold = h.hold_of(a)
    assert (HoldState.READY, grown, 12) == (hold.state, hold.data.start, hold.data.last)
    assert 9 == hold.data.parts["swa"].first

    assert 12 * 16 == h.admit(a).hit_tokens
    assert [h.stored_byte("swa", 11)] == h.shown(tokens, 11, 12, "swa")
