"""K77: a write to the store that had failed once was never tried again; every later turn computed the prefix anew.

Here a failed put backs off and comes again, a bounded number of times; what was given up then is counted by its reason,
and the next request that uses the pages offers them again.
"""

from __future__ import annotations

import pytest

from stagehold.testing.hand import Hand


def later_turn(h: Hand) -> int:
    """Tokens that the store brings to a request that comes when the device has forgotten the prompt."""
    tokens = h.prompt(8)
    h.shrink(tokens, 0)
    later = h.arrive(f"later{h.now}", tokens)
    h.tick(4)
    admission = h.admit(later)
    h.engine.abort(later)
    return admission.store_hit_tokens


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_later_turn_finds_what_failed_at_first(hand, failures):
    """The tries are spent on it, and the prefix is in the store."""
    h = hand(staging_pages=80)
    h.run("first", h.prompt(8))
    h.store.fail_next(failures)
    h.until(lambda: not h.core.writes, 100)
    stats = h.engine.stats()
    assert (failures, 1) == (
        stats.count("write_put_ended_failed").taken,
        stats.count("write_put_ended_stored").taken,
    )
    assert 128 == later_turn(h)


def test_what_is_given_up_has_a_reason_with_its_tokens(hand):
    """Three failures are the end of this write: seen in a counter of its own, and nothing is believed stored."""
    h = hand(staging_pages=80)
    h.run("first", h.prompt(8))
    h.store.fail_next(3)
    h.until(lambda: not h.core.writes, 100)
    assert (1, 128) == ((spent := h.engine.stats().count("write_put_ended_spent")).taken, spent.tokens)
    assert 8 == h.engine.stats().dropped_pages
    assert not any(h.core.beliefs.knows(key) for key in h.core.keys(h.chain(h.prompt(8)), 0, 8))
    assert 0 == later_turn(h)


def test_what_was_given_up_is_offered_again_by_the_next_use(hand):
    """Not lost for the life of the prefix."""
    h = hand(staging_pages=80)
    h.run("first", h.prompt(8))
    h.store.fail_next(3)
    h.until(lambda: not h.core.writes, 100)
    assert 128 == h.run("uses", h.prompt(8)).device_hit_tokens
    h.until(lambda: not h.core.writes, 100)
    assert 128 == later_turn(h)


def test_with_one_try_a_later_turn_would_compute_again(hand):
    """Planted, by the limit: no second try, and nothing comes back."""
    h = hand(staging_pages=80, tries=1)
    h.run("first", h.prompt(8))
    h.store.fail_next(1)
    h.until(lambda: not h.core.writes, 100)
    assert 0 == later_turn(h)


def test_tries_are_bounded_whatever_the_store_does(hand):
    """It fails for ever: three puts a write, each pause twice as long, and then rest."""
    h = hand(staging_pages=80, open_limit=2048, trip_results=60)
    h.run("first", h.prompt(8))
    h.store.fail_next(10**6)
    took = h.until(lambda: not h.core.writes, 200)
    assert 8 + 16 <= took <= 8 + 16 + 12
    begun = h.core.operations._next
    h.tick(100)
    assert begun == h.core.operations._next
