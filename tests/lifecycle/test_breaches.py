"""Books that are found wrong in service: counted, told once, and lived with."""

from __future__ import annotations

import json

import pytest

from stagehold import AuditLog, InvariantBroken, RequestState


def lose_slot(h):
    h.core.device.alloc(1)


def lose_staging(h):
    h.core.staging.alloc(1)


def lose_token(h):
    h.core.ledger.queried += 16


def pin_too_much(h):
    tokens = h.prompt(34, 3)
    h.grow(tokens, 34)
    h.core.tree.pin(h.chain(tokens), 34)


PLANTED = {"device": lose_slot, "staging": lose_staging, "tokens": lose_token, "pins": pin_too_much}


class Listener:
    """What was told."""

    def __init__(self):
        self.told = []

    def __call__(self, tick, what, *, book):
        self.told.append((tick, book))


def service(hand, **options):
    """An engine that goes on, and its listener."""
    listener = Listener()
    h = hand(engine_options={"on_violation": listener, "strict": False}, **options)
    return h, listener


@pytest.mark.parametrize("book", PLANTED)
def test_a_service_counts_a_breach_once_tells_of_it_once_and_goes_on(hand, book):
    """However long the book stays wrong."""
    h, listener = service(hand)
    PLANTED[book](h)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.serve(a).hit_tokens
    h.tick(5)
    assert (1, [book]) == (h.engine.stats().violations, [told for _, told in listener.told])


def test_a_promise_of_more_than_there_is_shows_in_service(hand):
    """The room is negative, which sums say as well as counts."""
    h, listener = service(hand)
    h.core.reserved += 500
    h.core.ledger.totals["slots"] += 500
    h.tick()
    h.core.reserved -= 500
    h.core.ledger.totals["slots"] -= 500
    assert [(h.now, "device")] == listener.told


def test_a_book_that_is_wrong_again_counts_again_and_is_not_told_again(hand):
    """A log line per tick helps nobody."""
    h, listener = service(hand)
    for _ in range(3):
        h.core.ledger.queried += 16
        h.tick(2)
        h.core.ledger.queried -= 16
        h.tick(2)
    assert (3, 1) == (h.engine.stats().violations, len(listener.told))


def test_a_strict_engine_raises_and_tells_nobody(hand):
    """The error is the message."""
    listener = Listener()
    h = hand(engine_options={"on_violation": listener})
    h.core.ledger.queried += 16
    with pytest.raises(InvariantBroken, match="tokens"):
        h.tick()
    h.core.ledger.queried -= 16
    assert ([], 0) == (listener.told, h.engine.stats().violations)


def test_without_a_listener_the_process_log_has_an_error(hand, caplog):
    """One line, with tick and book."""
    h = hand(engine_options={"strict": False})
    lose_token(h)
    h.tick(3)
    (record,) = caplog.records
    assert ("stagehold", "ERROR") == (record.name, record.levelname)
    assert record.message.startswith(f"tick {h.now - 2}: tokens: ")


def test_an_audit_log_can_be_the_listener(hand, tmp_path):
    """The line stands among the blocks."""
    with AuditLog(tmp_path / "audit.jsonl") as log:
        h = hand(engine_options={"sink": log.block, "on_violation": log.violation, "strict": False})
        lose_token(h)
        h.tick(2)
        h.engine.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "violation"]
    assert ("tokens", h.now - 1) == (line["book"], line["tick"])


def give_claim_twice(h, a):
    number = h.machine(a).number
    for _ in range(2):
        h.core.ledger.give("claim", number)
    h.core.ledger.take("claim", number, b"")


def give_pin_of_the_hold_twice(h, a):
    number = h.hold_of(a).number
    for _ in range(2):
        h.core.ledger.give("pin", number)
    h.core.ledger.take("pin", number, b"", 0)


@pytest.mark.parametrize("breach", [give_claim_twice, give_pin_of_the_hold_twice])
def test_a_request_whose_books_are_wrong_asks_the_store_no_more(hand, breach):
    """It has launches left, and is capped; another one goes on asking."""
    h, _ = service(hand, ready_limit=20, retry_interval_ticks=2)
    for name, family in (("a", 1), ("b", 2)):
        h.put(h.prompt(8, family))
        h.arrive(name, h.prompt(8, family))
    h.tick(3)
    a, b = (h.engine._roster.alive[name].data.handle for name in "ab")
    breach(h, a)
    h.until(lambda: h.engine.state_of(a) is RequestState.CAPPED, 60)
    h.until(lambda: h.engine.state_of(b) is RequestState.STAGED, 60)
    assert h.machine(a).issues < h.config.limits.issue_limit
    assert 1 == h.engine.stats().violations
    assert 0 == h.admit(a).store_hit_tokens


def test_a_barred_request_is_not_sent_back_from_a_cover_that_shrank(hand):
    """What is left to it is to compute."""
    h, _ = service(hand)
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    h.admit(b)
    h.engine.abort(b)
    h.tick(2)
    assert RequestState.COVERED is h.engine.state_of(a)
    h.core.bar(h.machine(a).number)
    h.shrink(tokens, 2)
    assert 32 == h.admit(a).hit_tokens


def test_sums_of_a_sound_engine_always_match(hand):
    """Fetches, loads, writes and aborts at any moment, in service: nothing is counted and nobody told."""
    h, listener = service(hand)
    for number in range(20):
        tokens = h.prompt(8, number % 5, shared=3)
        h.put(tokens)
        handle = h.arrive(f"r{number}", tokens)
        h.tick(number % 5)
        if number % 3 and getattr(h.visit(handle), "admitted", False):
            h.compute(handle)
        h.engine.abort(handle)
    h.tick(40)
    assert h.engine.stats().spliced
    assert ([], 0) == (listener.told, h.engine.stats().violations)
