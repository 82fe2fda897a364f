"""What a hit would protect counts against the room: its pages could be evicted before, and cannot be afterwards."""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome

HIT = 8


@pytest.mark.parametrize(("more", "outcome"), [(5, AdmissionOutcome.ADMITTED), (6, AdmissionOutcome.NO_ROOM)])
def test_a_hit_on_evictable_pages_is_paid_for(hand, more, outcome):
    """Seven of twenty slots are promised, eight hold the prefix: five pages go behind it, and a sixth does not."""
    h = hand(store=None, device_pages=20, largest_request_tokens=14 * 16)
    h.grow(h.prompt(HIT), HIT)
    busy = h.arrive("busy", h.prompt(6, 2), new=15)
    h.tick()
    assert 7 == h.admit(busy).extend_tokens // 16 + 1
    assert 13 == h.core.room()
    other = h.arrive("other", h.prompt(HIT + more - 1))
    h.tick()
    found = h.visit(other)
    assert (outcome, 16 * HIT if found.admitted else 0) == (found.outcome, found.hit_tokens)
