"""Rows that only a rare order of events takes: retries that fall due at a bad moment, and the breaker's side doors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagehold import RequestState
from stagehold.specs.store import StoreState
from stagehold.testing.hand import SLOW_GETS, Hand

Build = Callable[..., Hand]


def missed(h: Hand) -> object:
    """A request whose lookup found nothing, its retry armed."""
    handle = h.arrive("missed", h.prompt(8))
    h.until_state(handle, RequestState.RETRY)
    return handle


def fault(h: Hand) -> None:
    """One lookup fails."""
    h.store.fail_next(1)
    handle = h.arrive(f"fault-{h.now}", h.prompt(4, 500 + h.now))
    h.tick(2)
    h.engine.abort(handle)


def test_a_retry_that_falls_due_in_an_outage_waits_for_the_recovery(hand: Build) -> None:
    """It costs one issue, and no timer is armed; the recovery sends the next launch."""
    h = hand(trip_results=1, retry_interval_ticks=20, open_limit=60)
    handle = missed(h)
    fault(h)
    h.until(lambda: h.taken("request.retry.due.STORE_OPEN"), 20)

    assert StoreState.OPEN is h.core.breaker.state
    assert (2, RequestState.RETRY) == (h.machine(handle).issues, h.engine.state_of(handle))
    h.tick(30)
    assert 2 == h.machine(handle).issues
    h.until_state(handle, RequestState.LOOKUP, patience=60)
    assert StoreState.HEALTHY is h.core.breaker.state


def test_a_retry_that_falls_due_while_staging_is_full_is_declined_and_counted(hand: Build) -> None:
    """The load limit declines it, and its next turn is the next interval later."""
    h = hand(delays=SLOW_GETS)
    handle = missed(h)
    for family in (2, 3):
        h.put(h.prompt(20, family))
        h.arrive(f"full-{family}", h.prompt(20, family))
    h.until(lambda: h.taken("request.retry.due.DECLINED"), 9)

    assert (2, RequestState.RETRY) == (h.machine(handle).issues, h.engine.state_of(handle))
    assert {"load_limit": 1} == h.engine.stats().declines
    h.tick(15)
    assert 1 == h.taken("request.retry.due.DECLINED")
    h.tick(1)
    assert 2 == h.taken("request.retry.due.DECLINED")


def test_where_one_result_is_enough_the_first_fault_trips_a_healthy_store(hand: Build) -> None:
    """There is no suspicion on the way."""
    h = hand(trip_results=1)
    fault(h)

    assert StoreState.OPEN is h.core.breaker.state
    assert 1 == h.taken("store.healthy.result.TRIPPED")


@pytest.mark.parametrize("window", [3, 6, 30])
def test_a_clean_result_clears_a_store_whose_faults_have_just_left_the_window(hand: Build, window: int) -> None:
    """In the very tick in which the suspicion would have run out, the result comes first."""
    h = hand(suspect_window=window)
    fault(h)
    h.tick(window - 2)
    h.arrive("clean", h.prompt(4))
    h.tick(2)

    assert StoreState.HEALTHY is h.core.breaker.state
    assert (1, 0) == (h.taken("store.suspect.result.CLEAN"), h.taken("store.suspect.timeout"))


def test_a_probe_that_fails_doubles_the_rest(hand: Build) -> None:
    """A bad answer is as bad as silence, and sooner known."""
    h = hand(trip_results=1, open_limit=10, suspect_window=9)
    fault(h)
    h.store.fail_next(1)
    h.until(lambda: h.taken("store.probing.probed.BAD"), 13)

    assert 20 == h.until(lambda: h.core.breaker.state is StoreState.PROBING)
