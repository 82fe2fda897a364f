"""Checkpoints of a running request: where its state stands is known from the room that it was given."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("ahead", "checkpoints"), [(0, 1), (1, 0), (64, 0)])
def test_a_state_that_may_have_moved_on_is_no_checkpoint(mixed, ahead, checkpoints):
    """A loop with batches in flight publishes what was computed after it has taken room for the next chunk."""
    h = mixed("s", store=None)
    a = h.arrive("a", h.prompt(12))
    h.admit(a)
    h.engine.extend(a, 64)
    if ahead:
        h.engine.extend(a, ahead)
    h.engine.publish(a, 64)
    assert 4 == h.live(h.prompt(12))
    assert checkpoints == len(h.core.tree.owned("state"))


def test_a_checkpoint_has_the_bytes_of_the_state_that_it_is_of(mixed):
    """It is a copy: the request computes on in its own slot."""
    h = mixed("s", store=None)
    a = h.arrive("a", h.prompt(12))
    h.admit(a)
    h.engine.extend(a, 64)
    (own,) = h.engine.page_slots(a, "state")
    h.core.bytes["state"].device.tensor[:, own] = 77
    h.engine.publish(a, 64)
    (kept,) = h.core.tree.owned("state")
    h.core.bytes["state"].device.tensor[:, own] = 78
    assert (own,) == tuple(h.engine.page_slots(a, "state")) != (kept,)
    assert [77, 78] == h.bytes_at("state", [kept, own])
