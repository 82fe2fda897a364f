"""The books: one owner for each unit, an end for each token, and a tick that looks."""

from __future__ import annotations

import pytest

from stagehold import InvariantBroken
from stagehold.lifecycle.books import check
from stagehold.lifecycle.ledger import Ledger
from stagehold.specs.outcomes import Loss


def test_taking_twice_is_a_bug():
    """The owner has it already."""
    ledger = Ledger()
    ledger.take("pin", 7, b"ns", 3)
    with pytest.raises(InvariantBroken, match="7 takes pin while it owns 3"):
        ledger.take("pin", 7, b"ns", 3)


def test_giving_back_what_is_not_owned_is_a_bug():
    """A release without a receipt is not a smaller count: it is refused, and the books stay right."""
    ledger = Ledger()
    ledger.take("pin", 7, b"ns", 3)
    assert ledger.give("pin", 7)
    with pytest.raises(InvariantBroken, match="7 gives back pin, which it does not own"):
        ledger.give("pin", 7)
    assert 0 == ledger.totals["pin"]


def test_changing_what_is_not_owned_is_a_bug():
    """The books stay as they were."""
    ledger = Ledger()
    with pytest.raises(InvariantBroken, match="7 changes pin, which it does not own, to 3"):
        ledger.change("pin", 7, 3)
    assert (0, {}) == (ledger.totals["pin"], ledger.entries)


def test_a_ledger_that_is_not_strict_notes_breaches_and_stays_right():
    """Nothing is given twice, nothing is forgotten, and every total is still the sum of the entries."""
    ledger = Ledger(strict=False)
    ledger.take("pin", 7, b"ns", 3)
    ledger.take("pin", 7, b"ns", 2)
    assert (5, 5) == (ledger.totals["pin"], ledger.entries["pin", 7].units)
    ledger.change("pin", 8, 4)
    assert [True, False] == [ledger.give("pin", 7), ledger.give("pin", 7)]
    assert (0, {}) == (ledger.totals["pin"], ledger.entries)
    assert [7, 8, 7] == [breach.owner for breach in ledger.breaches]


def test_every_entry_names_its_namespace():
    """Quotas can be read off the books."""
    ledger = Ledger()
    ledger.take("staging", 1, b"tenant", 4)
    ledger.change("staging", 1, 2)
    assert (b"tenant", 2) == (ledger.entries["staging", 1].namespace, ledger.entries["staging", 1].units)


def test_tokens_balance_over_every_end():
    """queried = spliced + losses + open."""
    ledger = Ledger()
    ledger.open_claim(100)
    ledger.lose(30, Loss.TRIMMED)
    assert (0, 70) == (ledger.token_gap, ledger.open)
    ledger.splice(50, 20)
    assert (0, 0, 50) == (ledger.token_gap, ledger.open, ledger.spliced)
    assert {Loss.TRIMMED: 30, Loss.COVERED: 20} == dict(ledger.losses)


def test_a_lost_token_shows():
    """The gap can be other than zero."""
    ledger = Ledger()
    ledger.open_claim(100)
    ledger.open -= 1
    assert 1 == ledger.token_gap


def leak_slot(h):
    h.core.device.alloc(1)


def leak_staging(h):
    h.core.staging.alloc(1)


def leak_ledger_entry(h):
    h.core.ledger.take("pin", 999, b"")


def lose_token(h):
    h.core.ledger.open += 16
    h.core.ledger.queried += 16


def break_promise(h):
    h.core.reserved += 1


def miscount_committed(h):
    h.core.committed += 1


def pin_too_much(h):
    tokens = h.prompt(34, 3)
    h.grow(tokens, 34)
    h.core.tree.pin(h.chain(tokens), 34)


def forget_claim(h):
    next(iter(h.core.holds.values())).data.claims.clear()


def miscount_span(h):
    h.core.hold_pages += 1


def miscount_written(h):
    h.core.write_pages += 1


PLANTED = [
    (leak_slot, "device"),
    (leak_staging, "staging"),
    (leak_ledger_entry, "owners"),
    (lose_token, "tokens"),
    (break_promise, "device"),
    (miscount_committed, "device"),
    (pin_too_much, "pins"),
    (forget_claim, "claims"),
    (miscount_span, "claims"),
    (miscount_written, "staging"),
]


@pytest.mark.parametrize(("plant", "book"), PLANTED)
def test_a_planted_breach_stops_the_next_strict_tick(hand, plant, book):
    """Each book can be seen to fail, and says which it is."""
    h = hand()
    h.put(h.prompt(8))
    h.arrive("a", h.prompt(8))
    h.tick(2)
    saved = h.engine.snapshot()
    assert [] == check(h.core)
    plant(h)
    with pytest.raises(InvariantBroken, match=rf"tick {h.now + 1}: .*{book}|{book}"):
        h.tick()
    assert book in {violation.book for violation in check(h.core)}
    h.engine.restore(saved)
    h.engine._parts.tick.state = type(h.engine._parts.tick.state)(0)


def point_to_nobody(h):
    h.core.spans[b"key", 0, 3] = 999


def point_to_another_span(h):
    ((key, start, last), number) = next(iter(h.core.spans.items()))
    h.core.spans[key, start, last - 1] = number


@pytest.mark.parametrize("plant", [point_to_nobody, point_to_another_span])
def test_a_registry_that_leads_joiners_astray_is_seen(hand, plant):
    """Whoever joins a hold must find the span that was named, and a hold that others wait for, too."""
    h = hand()
    h.put(h.prompt(8))
    h.arrive("a", h.prompt(8))
    h.tick(2)
    before = dict(h.core.spans)
    plant(h)
    assert ["spans"] == [violation.book for violation in check(h.core)]
    h.core.spans = before
