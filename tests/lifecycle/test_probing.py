"""What a resting store must show before it is asked again, and how long it rests after a relapse."""

from __future__ import annotations

from collections.abc import Callable

from stagehold.specs.store import StoreState
from stagehold.testing.hand import Hand

OPEN_LIMIT = 128
LIMITS = {"open_limit": OPEN_LIMIT, "probe_limit": 64}


def trips_made(one: Hand) -> int:
    """Puts of the test page since the store was wrapped."""
    return one.store.puts


def count_puts(one: Hand) -> None:
    """Let the store count how often it is written to."""
    inner, one.store.puts = one.store.put, 0

    def put(*args: object) -> None:
        one.store.puts += 1
        inner(*args)

    one.store.put = put


def test_a_store_is_believed_after_three_round_trips(hand: Callable[..., Hand]) -> None:
    """One right answer is not enough."""
    one = hand(**LIMITS)
    one.outage()
    count_puts(one)
    one.until(lambda: one.core.breaker.state is StoreState.PROBING)
    one.until(lambda: one.core.breaker.state is StoreState.HEALTHY)

    assert one.config.limits.probe_trips == 3 == trips_made(one)


def test_a_failure_in_the_second_round_trip_keeps_the_store_resting(hand: Callable[..., Hand]) -> None:
    """A store that answers once and then fails does not flap at the pace of its first rest."""
    one = hand(**LIMITS)
    one.outage()
    count_puts(one)
    one.until(lambda: trips_made(one) == 2)
    one.store.fail_next(1)
    one.until(lambda: one.core.breaker.state is not StoreState.PROBING)

    assert one.core.breaker.state is StoreState.OPEN
    assert one.core.breaker.data.rest == 2 * OPEN_LIMIT


def test_a_relapse_rests_longer_and_a_long_recovery_starts_anew(hand: Callable[..., Hand]) -> None:
    """A second outage right after the first doubles the rest; one that comes later does not."""
    one = hand(**LIMITS)
    one.outage()
    one.until(lambda: one.core.breaker.state is StoreState.HEALTHY)
    one.outage()
    assert one.core.breaker.data.rest == 2 * OPEN_LIMIT

    one.until(lambda: one.core.breaker.state is StoreState.HEALTHY)
    one.tick(2 * OPEN_LIMIT)
    one.outage()
    assert one.core.breaker.data.rest == OPEN_LIMIT
