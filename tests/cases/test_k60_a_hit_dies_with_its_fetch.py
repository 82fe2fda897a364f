"""K60: the length of a hit in the store was sent on although nothing had been fetched.

It was kept beside the request and outlived the fetch that it belonged to. Here the length that counts is the span of a
hold, the claim ends with the hold, and what an admission reports was spliced by that very commit.
"""

from __future__ import annotations

import pytest

from stagehold import PrefetchPolicy, RequestState
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import SLOW_GETS


def test_a_hit_that_nobody_waited_for_is_not_reported(hand):
    """It was found, and its fetch is under way; the request is admitted without."""
    h = hand(delays=SLOW_GETS, prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.machine(a).data.claim_tokens
    admission = h.admit(a)
    data = h.machine(a).data
    assert (0, 0, 0) == (admission.store_hit_tokens, data.claim_tokens, data.hold)


@pytest.mark.parametrize("gone", ["dropped", "damaged", "failed"])
def test_a_hit_whose_fetch_failed_is_forgotten(hand, gone):
    """The end that was known is not; the next launch asks anew, and finds what is there."""
    h = hand(retry_interval_ticks=4)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick()
    match gone:
        case "dropped":
            for name in h.names(tokens):
                h.store.drop(name)
        case "damaged":
            h.store.damage(h.names(tokens)[0])
        case "failed":
            h.store.fail_next(1)
    h.tick(2)
    data = h.machine(a).data
    assert (0, 0) == (data.known_end, data.claim_tokens)
    if gone == "damaged":
        h.put(tokens)
    h.tick(8)
    h.until_state(a, RequestState.RETRY, RequestState.STAGED)
    found = 0 if gone == "dropped" else 128
    assert found == h.machine(a).data.claim_tokens == h.admit(a).store_hit_tokens


def test_a_short_delivery_shortens_what_is_reported(hand):
    """Four of eight pages came: four are reported, and the end that is known is theirs."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    h.store.damage(h.names(tokens)[4])
    a = h.arrive("a", tokens)
    h.tick(3)
    assert 4 == h.machine(a).data.known_end
    assert 64 == h.admit(a).store_hit_tokens


def test_the_next_attempt_knows_nothing_of_the_last_one_s_hit(hand):
    """A retraction starts a record of its own."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.admit(a).store_hit_tokens
    again = h.engine.retract(a)
    data = h.machine(again).data
    assert (0, 0, 0, 0) == (data.known_end, data.claim_tokens, data.store_hit_tokens, data.hold)
    h.tick()
    assert (128, 0) == ((admission := h.admit(again)).device_hit_tokens, admission.store_hit_tokens)


def test_what_is_reported_over_a_life_is_what_was_spliced(hand):
    """Sixty requests with hits of all fates: the sums are equal to the token."""
    h = hand(fetch_limit=5, retry_interval_ticks=3)
    reported = 0
    for number in range(60):
        tokens = h.prompt(8, number + 1)
        h.put(tokens, 0, number % 9)
        if number % 4 == 1 and number % 9 > 3:
            h.store.damage(h.names(tokens)[number % 3])
        if number % 5 == 2:
            h.store.fail_next(2)
        a = h.arrive(f"r{number}", tokens)
        h.tick(number % 6)
        admission = h.visit(a)
        if getattr(admission, "admitted", False):
            reported += admission.store_hit_tokens
        h.engine.abort(a)
        h.store.fail_next(0)
    assert reported == h.engine.stats().spliced > 0
    assert HoldState.PLANNED not in [hold.state for hold in h.core.holds.values()]
