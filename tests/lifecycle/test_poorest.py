"""Room is what the rank has that has the fewest pages left, whatever this one has."""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome
from stagehold.lifecycle.facts import TAIL, WORDS, Capacity


@pytest.mark.parametrize(("left", "outcome"), [(5, AdmissionOutcome.ADMITTED), (4, AdmissionOutcome.NO_ROOM)])
def test_an_admission_counts_on_what_the_poorest_rank_has(hand, left, outcome):
    """The request may take five pages; another rank has said that it has so many."""
    h = hand(store=None)
    handle = h.arrive("a", h.prompt(4))
    agreed = h.engine.poll().copy()
    agreed[-TAIL + WORDS + Capacity._fields.index("device")] = left
    h.engine.proceed(agreed)

    assert outcome is h.visit(handle).outcome
