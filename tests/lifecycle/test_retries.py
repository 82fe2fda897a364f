"""When the store is asked again: paced, at once after a loss, woken by a write, woken by the store's recovery."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stagehold import RequestState, Skip
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.store import StoreState
from stagehold.testing.hand import SLOW_GETS

RETRY, LOOKUP, CAPPED, STAGED = RequestState.RETRY, RequestState.LOOKUP, RequestState.CAPPED, RequestState.STAGED


def launches(h, handle):
    """Ticks in which the attempt asked the store, from now to its cap."""
    asked, before = [], h.machine(handle).issues
    while h.engine.state_of(handle) is not CAPPED:
        h.tick()
        if h.machine(handle).issues > before:
            asked.append(h.now)
            before = h.machine(handle).issues
    return asked


def test_a_miss_is_asked_again_eight_ticks_after_the_answer(hand):
    """The interval counts from the moment `retry` is entered."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    assert 8 == h.until_state(a, LOOKUP)


def test_a_miss_that_another_server_fills_is_a_hit_at_the_next_launch(hand):
    """What a paced retry is for."""
    h = hand()
    tokens = h.prompt(8)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    h.put(tokens)
    h.until_state(a, STAGED)
    h.tick()
    assert 128 == h.admit(a).store_hit_tokens


def test_after_eight_reissues_the_request_is_capped_and_computes(hand):
    """One lookup and at most eight more, over all causes; then it is admitted with what the device holds."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    assert 9 == len(launches(h, a))
    assert 8 == h.engine.stats().max_reissues
    assert 0 == h.admit(a).hit_tokens


def test_launches_of_a_hopeless_request_are_ever_longer_intervals_and_one_answer_apart(hand):
    """A store that answers fast is still not asked more often than paced; what it never has, less and less often."""
    h = hand()
    asked = launches(h, h.arrive("a", h.prompt(8)))
    assert [9, 17, 33, 65, 129, 129, 129, 129] == [later - earlier for earlier, later in pairwise(asked)]


def test_a_cap_of_one_interval_keeps_launches_equally_far_apart(hand):
    """retry_interval_cap = retry_interval_ticks."""
    h = hand(retry_interval_cap=8)
    asked = launches(h, h.arrive("a", h.prompt(8)))
    assert {9} == {later - earlier for earlier, later in pairwise(asked)}


def test_no_reissues_means_one_lookup(hand):
    """retry_max_reissues=0."""
    h = hand(retry_max_reissues=0)
    assert 1 == len(launches(h, h.arrive("a", h.prompt(8))))


def test_interval_zero_switches_paced_retries_off(hand):
    """A miss then waits for a wake-up that may never come, and its admission waits for nothing."""
    h = hand(retry_interval_ticks=0)
    a = h.arrive("a", h.prompt(8))
    h.tick(300)
    assert (RETRY, 1) == (h.engine.state_of(a), h.machine(a).issues)
    assert h.admit(a).admitted


def test_an_armed_retry_does_not_delay_admission(hand):
    """A visit to a request in `retry` commits in that pass."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    assert h.admit(a).admitted
    h.tick(40)
    assert 1 == h.machine(a).issues


@pytest.mark.parametrize("interval", [0, 100])
def test_our_own_write_of_the_missing_pages_wakes_the_retry(hand, interval):
    """The acknowledgement makes it due in the same tick, whatever the interval."""
    h = hand(retry_interval_ticks=interval, delays=Delays(exists=(1, 1), get=(1, 1), put=(10, 10)))
    tokens = h.prompt(8)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    h.run("b", tokens)
    h.tick(4)
    h.shrink(tokens, 0)
    h.until(lambda: h.engine.stats().stored_pages == 8)
    assert (LOOKUP, 2) == (h.engine.state_of(a), h.machine(a).issues)


def test_of_several_writes_the_one_of_the_last_missing_page_wakes_the_retry(hand):
    """Two writes bring seven pages and one more: the first of them wakes nobody, and the request gets all eight."""
    h = hand(retry_interval_ticks=0, delays=Delays(exists=(1, 1), get=(1, 1), put=(10, 10)))
    tokens = h.prompt(8)
    h.run("b", h.prompt(7))
    h.tick(4)
    h.run("c", tokens)
    h.tick(4)
    h.shrink(tokens, 0)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    h.until(lambda: h.engine.stats().stored_pages == 7)
    assert RETRY is h.engine.state_of(a)
    h.until(lambda: h.engine.stats().stored_pages == 8)
    assert (LOOKUP, 2) == (h.engine.state_of(a), h.machine(a).issues)
    h.until_state(a, STAGED)
    h.tick()
    assert 8 * 16 == h.admit(a).store_hit_tokens


def test_a_write_acknowledged_while_the_lookup_was_out_makes_the_retry_due_at_once(hand):
    """Arming looks first, or the wake-up would be lost."""
    h = hand(retry_interval_ticks=0, delays=Delays(exists=(6, 6), get=(1, 1), put=(1, 1)))
    tokens = h.prompt(8)
    a = h.arrive("a", tokens)
    h.tick()
    h.core.store._delays = Delays(exists=(1, 1), get=(1, 1), put=(1, 1))
    answer_at = h.now + 6
    # The store looks when the answer is due, so the pages are hidden from that look.
    h.run("b", tokens)
    h.until(lambda: h.engine.stats().stored_pages == 8)
    assert h.now < answer_at
    h.shrink(tokens, 0)
    for name in h.names(tokens):
        h.store.drop(name)
    h.until(lambda: h.now == answer_at)
    assert (LOOKUP, 2) == (h.engine.state_of(a), h.machine(a).issues)


def test_a_write_of_other_pages_wakes_nobody(hand):
    """Only the end of what is missing counts."""
    h = hand(retry_interval_ticks=0)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    h.run("b", h.prompt(8, 2))
    h.until(lambda: h.engine.stats().stored_pages == 8)
    h.tick(5)
    assert (RETRY, 1) == (h.engine.state_of(a), h.machine(a).issues)


def test_a_lost_anchor_is_asked_again_at_once(hand):
    """The launch comes in the very visit that saw the loss, so the request is not admitted with nothing."""
    h = hand(pin_fraction=0.0)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.shrink(tokens, 0)
    skip = h.visit(a)
    assert (Skip, LOOKUP, 2) == (type(skip), h.engine.state_of(a), h.machine(a).issues)
    h.tick(3)
    assert 128 == h.admit(a).store_hit_tokens


def test_a_lost_anchor_without_an_issue_left_is_capped(hand):
    """RESOLVE says CAP, and the same visit admits with what the device holds."""
    h = hand(pin_fraction=0.0, retry_max_reissues=0)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.shrink(tokens, 1)
    assert 16 == h.admit(a).hit_tokens
    h.tick()
    assert 1 == h.taken("request.anchor_lost.resolve.CAP")


def test_a_cover_that_shrank_in_the_queue_is_fetched_again_without_a_query(hand):
    """SHRUNK: the end is still known, and the beliefs say that the store has what the tree lost."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.grow(tokens, 8)
    h.tick(1)
    assert not isinstance(h.engine.select(a, 100), Skip)
    h.engine.release(h.core.visits[h.machine(a).number])
    assert RequestState.COVERED is h.engine.state_of(a)
    h.shrink(tokens, 2)
    skip = h.visit(a)
    assert (Skip, STAGED) == (type(skip), h.engine.state_of(a))
    h.tick(2)
    assert 6 * 16 == h.admit(a).store_hit_tokens
    h.tick()
    assert 1 == h.taken("request.retry.due.KNOWN")


def test_an_open_breaker_costs_a_request_one_issue_and_its_recovery_wakes_it(hand):
    """No timer runs during an outage; the store entering `healthy` sends `due`."""
    h = hand(open_limit=128)
    tokens = h.prompt(8)
    h.put(tokens)
    h.outage()
    a = h.arrive("a", tokens)
    h.tick(100)
    assert (RETRY, 1) == (h.engine.state_of(a), h.machine(a).issues)
    h.until(lambda: h.core.breaker.state is StoreState.HEALTHY)
    assert (LOOKUP, 2) == (h.engine.state_of(a), h.machine(a).issues)
    h.tick(2)
    assert 128 == h.admit(a).store_hit_tokens


def test_a_request_in_an_outage_is_admitted_at_once(hand):
    """A store that is not asked keeps nobody waiting."""
    h = hand()
    h.outage()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert h.admit(a).admitted


def test_a_stored_write_wakes_nobody_while_the_breaker_is_open(hand):
    """It would cost a second issue in one outage."""
    h = hand(retry_interval_ticks=0, delays=Delays(exists=(1, 1), get=(1, 1), put=(60, 60)))
    tokens = h.prompt(8)
    h.run("writer", tokens)
    h.tick(2)
    h.shrink(tokens, 0)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    h.outage()
    h.until(lambda: h.engine.stats().stored_pages == 8)
    assert (StoreState.OPEN, RETRY, 1) == (h.core.breaker.state, h.engine.state_of(a), h.machine(a).issues)


def test_a_lookup_that_is_not_answered_is_given_up_at_its_limit(hand):
    """The retry is paced, and the late answer finds nobody."""
    h = hand(lookup_limit=10, retry_interval_ticks=50)
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert 10 == h.until_state(a, RETRY)
    assert {} == h.books()
    h.store.release()
    h.tick(3)
    assert RETRY is h.engine.state_of(a)


def test_a_late_answer_cannot_touch_the_next_attempt(hand):
    """Operations are found by number, requests by attempt."""
    h = hand()
    tokens = h.prompt(8)
    h.store.stall()
    a = h.arrive("a", tokens)
    h.tick()
    h.engine.abort(a)
    again = h.arrive("a", tokens)
    h.put(tokens)
    h.store.release()
    h.tick()
    assert (1, LOOKUP) == (again.attempt, h.engine.state_of(again))
    assert 0 == len(h.core.holds)


def test_a_failed_fetch_forgets_the_end_and_is_paced(hand):
    """The next launch asks the store, and does not believe what it said before."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    for name in h.names(tokens):
        h.store.drop(name)
    h.tick()
    assert (RETRY, 0) == (h.engine.state_of(a), h.machine(a).data.known_end)
    assert {"failed": 128} == h.engine.stats().losses
    assert 8 == h.until_state(a, LOOKUP)


def test_after_a_failed_fetch_the_store_is_asked_for_all_that_is_missing(hand):
    """Not only up to where the last fetch came."""
    h = hand()
    tokens = h.prompt(8)
    h.grow(tokens, 2)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.store.drop(h.names(tokens)[3])
    h.tick()
    assert RETRY is h.engine.state_of(a)
    h.put(tokens)
    h.until_state(a, STAGED)
    h.tick()
    assert 96 == h.admit(a).store_hit_tokens


def test_a_retraction_starts_with_a_fresh_budget(hand):
    """The next attempt is another handle."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    launches(h, a)
    h.admit(a)
    again = h.engine.retract(a)
    h.tick()
    assert (1, LOOKUP, 1) == (again.attempt, h.engine.state_of(again), h.machine(again).issues)


def test_a_prompt_that_misses_less_than_the_threshold_is_covered_and_costs_no_issue(hand):
    """TOO_SHORT at the first launch is free."""
    h = hand(delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.grow(tokens, 7)
    a = h.arrive("a", tokens)
    h.tick()
    assert (RequestState.COVERED, 0) == (h.engine.state_of(a), h.machine(a).issues)


def test_a_retry_whose_prompt_the_tree_has_grown_over_costs_an_issue(hand):
    """Or covered and retry could chase each other for ever."""
    h = hand()
    tokens = h.prompt(8)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    h.grow(tokens, 8)
    h.until_state(a, RequestState.COVERED)
    assert 2 == h.machine(a).issues


def test_an_answer_below_the_threshold_is_no_hit(hand):
    """One page of two that a hold must have."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens, 0, 1)
    a = h.arrive("a", tokens)
    h.until_state(a, RETRY)
    assert 1 == h.taken("request.lookup.answer.BELOW_THRESHOLD")


def test_what_was_believed_before_the_store_was_asked_makes_no_retry_due(hand):
    """A lookup that timed out is asked again after the interval, however sure we are of the pages."""
    h = hand(lookup_limit=10)
    tokens = h.prompt(8)
    h.run("writer", tokens)
    h.until(lambda: not h.core.writes)
    h.shrink(tokens, 0)
    h.store.stall()
    a = h.arrive("a", tokens)
    h.tick()
    assert (10, 8) == (h.until_state(a, RETRY), h.until_state(a, LOOKUP))
