"""K81: new requests were looked at again and again, each waiting for the answer to a question that would be a miss.

Here the wait for a store is one budget for each attempt, over all its questions: a clock that starts at the first visit
that is skipped and is never wound up again.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState, Skip
from stagehold.lifecycle.visits import Visits
from stagehold.testing.hand import Hand

BASE = 12


def passes_until_admitted(h: Hand, handle, most: int = 300) -> int:
    """Visits that are skipped, one in each pass, until one admits."""
    for count in range(most):
        if not isinstance(h.visit(handle), Skip):
            return count
        h.tick()
    raise AssertionError(f"skipped {most} times")


def asking_again(build) -> tuple[Hand, object]:
    """A lookup that nobody answers runs into its limit again and again, with a new one right behind it."""
    h = build(wait_base_ticks=BASE, lookup_limit=4, retry_interval_ticks=1, suspect_window=1)
    h.store.stall()
    return h, h.arrive("a", h.prompt(8))


def test_thirty_requests_without_an_answer_are_admitted_in_their_budget(hand):
    """All of them, in the same pass."""
    h = hand(device_pages=400, wait_base_ticks=BASE)
    h.store.stall()
    handles = [h.arrive(f"r{number}", h.prompt(8, number + 1)) for number in range(30)]
    h.tick()
    ticks = 0
    while sum(isinstance(h.visit(handle), Skip) for handle in handles if not _runs(h, handle)):
        h.tick()
        ticks += 1
    assert BASE == ticks


def _runs(h: Hand, handle) -> bool:
    return h.engine.state_of(handle) is RequestState.COMMITTED


def test_many_questions_of_one_request_have_one_budget(hand):
    """Unless a visit finds it between two questions, which admits at once."""
    h, a = asking_again(hand)
    h.tick()
    assert passes_until_admitted(h, a) <= BASE
    h.tick(20)
    assert h.machine(a).issues >= 1


def test_a_budget_is_not_wound_up_by_a_new_question(hand):
    """Only visits during a question are counted here: their clock runs on through all of them."""
    h, a = asking_again(hand)
    h.tick()
    skipped = 0
    for _ in range(200):
        if h.engine.state_of(a) is RequestState.LOOKUP:
            if not isinstance(h.visit(a), Skip):
                break
            skipped += 1
        h.tick()
    assert 0 < skipped <= BASE
    assert _runs(h, a)
    assert h.machine(a).issues > 1


def test_a_clock_for_each_question_would_be_seen(hand, monkeypatch):
    """Planted: every launch starts the wait anew. The request is skipped for as long as it has launches."""
    h, a = asking_again(hand)
    h.tick()
    waits, issues = Visits._waits, [0]

    def anew(self, m, hold):
        if m.issues != issues[0]:
            issues[0], m.data.wait_from = m.issues, -1
        return waits(self, m, hold)

    monkeypatch.setattr(Visits, "_waits", anew)
    skipped = 0
    for _ in range(200):
        if h.engine.state_of(a) is RequestState.LOOKUP:
            if not isinstance(h.visit(a), Skip):
                break
            skipped += 1
        h.tick()
    assert skipped > BASE


@pytest.mark.parametrize("pages", [3, 8, 20])
def test_a_miss_that_is_answered_costs_the_answer_and_no_more(hand, pages):
    """One pass, whatever the length."""
    h = hand(wait_base_ticks=BASE)
    a = h.arrive("a", h.prompt(pages))
    h.tick()
    assert 1 == passes_until_admitted(h, a)
