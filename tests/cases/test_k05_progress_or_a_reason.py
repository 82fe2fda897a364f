"""K05: after two days of service, with one request running, nobody else was admitted any more, and nothing said why.

Protections had been forgotten one by one until no page could be evicted. Here, when all others have gone, what cannot
be evicted is what the one that runs has published, and whoever is not admitted gets a reason from every visit.
"""

from __future__ import annotations

import random

from stagehold import Admission, AdmissionOutcome, RequestState, Skip, SkipReason
from stagehold.lifecycle.holds import HoldRules
from stagehold.testing.hand import Hand


def two_days(h: Hand) -> int:
    """One request decodes on while hundreds come and go, in every way; returns the pages that nothing can evict."""
    dice = random.Random(5)
    runs = h.arrive("runs", h.prompt(6, 700), new=200)
    h.admit(runs)
    h.compute(runs)
    for number in range(300):
        tokens = h.prompt(dice.randint(3, 10), dice.randint(1, 12), shared=dice.randint(0, 4))
        if dice.random() < 0.7:
            h.put(tokens)
        if dice.random() < 0.3:
            h.grow(tokens, 2) if h.core.room() > 12 else None
        handle = h.arrive(f"r{number}", tokens)
        h.tick(dice.randint(0, 5))
        found = h.visit(handle)
        if isinstance(found, Admission) and found.admitted and dice.random() < 0.5:
            h.compute(handle)
            h.engine.finish(handle)
        else:
            h.engine.abort(handle)
        if number % 3 == 0 and number < 300:
            h.engine.extend(runs, 1, [number])
    h.tick(60)
    assert not h.core.writes
    return h.core.tree.total - h.core.tree.evictable


def test_what_cannot_be_evicted_is_what_runs(hand):
    """After hundreds of lives, not a page more; and a pass of eviction reaches all the others."""
    h = hand(device_pages=120)
    held = two_days(h)
    runs = h.engine._roster.alive["runs"]
    assert runs.data.published == held > 0
    assert h.core.tree.evictable == h.core.tree.evict(10**6)


def test_a_pin_that_is_forgotten_now_and_then_shows(monkeypatch):
    """Planted: every tenth pin is struck out of the books and stays on its path."""
    unpin, count = HoldRules._unpin, [0]

    def forgetful(self, hold):
        count[0] += 1
        if count[0] % 10 == 0:
            hold.data.pin = self.core.tree.pin(hold.data.chain, 0)
        unpin(self, hold)

    monkeypatch.setattr(HoldRules, "_unpin", forgetful)
    h = Hand(device_pages=120, engine_options={"strict": False})
    held = two_days(h)
    assert held > h.engine._roster.alive["runs"].data.published


def test_whoever_is_not_admitted_gets_a_reason_from_every_visit(hand):
    """Twenty requests before a device that one request fills: each visit ends in a member of a closed set."""
    h = hand(device_pages=40)
    runs = h.arrive("runs", h.prompt(30, 700))
    h.admit(runs)
    h.compute(runs)
    handles = []
    for number in range(20):
        tokens = h.prompt(12, number + 1)
        if number % 2:
            h.put(tokens)
        handles.append(h.arrive(f"r{number}", tokens))
    reasons = set()
    for _ in range(80):
        h.tick()
        for handle in handles:
            found = h.visit(handle)
            reasons.add(found.reason if isinstance(found, Skip) else found.outcome)
            assert reasons <= {*SkipReason, *AdmissionOutcome} - {AdmissionOutcome.ADMITTED}
    assert {SkipReason.WAITING_LOOKUP, AdmissionOutcome.NO_ROOM} <= reasons
    h.engine.finish(runs)
    h.until(lambda: getattr(h.visit(handles[0]), "admitted", False), 60)
    assert RequestState.COMMITTED is h.engine.state_of(handles[0])
