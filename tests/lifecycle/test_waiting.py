"""The wait clock: a request is skipped while its bytes are on their way, for a bounded number of ticks."""

from __future__ import annotations

import pytest

from stagehold import PrefetchPolicy, RequestState, Skip, SkipReason
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import SLOW_GETS


def skipped(h, handle):
    """Ticks for which visits to the request are answered Skip, and the reasons in order."""
    reasons, since = [], h.now
    while isinstance(answer := h.visit(handle), Skip):
        if answer.reason not in reasons:
            reasons.append(answer.reason)
        h.tick()
    return h.now - since, reasons


def test_best_effort_never_waits(hand):
    """A request whose lookup is out is admitted in the pass in which it is visited."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert RequestState.LOOKUP is h.engine.state_of(a)
    assert 0 == h.admit(a).hit_tokens
    assert {} == {k: v for k, v in h.books().items() if k not in ("slots", "lock")}


def test_best_effort_takes_what_is_ready(hand):
    """Zero wait is not zero use."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.admit(a).store_hit_tokens


def test_best_effort_leaves_a_fetch_that_has_nothing_yet(hand):
    """UNWAITED: the claim goes, the request computes, the buffer drains."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT, delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    assert 0 == h.admit(a).hit_tokens
    assert {"unwaited": 128} == h.engine.stats().losses
    assert [HoldState.DRAINING] == [m.state for m in h.core.holds.values()]


def test_timeout_waits_for_a_lookup_for_the_base_budget(hand):
    """The size of the hit is not known yet."""
    h = hand(wait_base_ticks=20)
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert (20, [SkipReason.WAITING_LOOKUP]) == skipped(h, a)
    assert RequestState.COMMITTED is h.engine.state_of(a)


def test_a_budget_of_one_tick_is_waited_for(hand):
    """And is over in the next pass."""
    h = hand(wait_base_ticks=1)
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert (1, [SkipReason.WAITING_LOOKUP]) == skipped(h, a)


def test_timeout_waits_longer_for_a_larger_hit(hand):
    """Base plus pages times per page, from the first skipped visit."""
    h = hand(wait_base_ticks=10, wait_per_page_ticks=2.0, delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert (10 + 16, [SkipReason.WAITING_LOOKUP, SkipReason.WAITING_FETCH]) == skipped(h, a)
    assert {"unwaited": 128} == h.engine.stats().losses


def test_timeout_never_waits_longer_than_the_cap(hand):
    """However much was found."""
    h = hand(wait_base_ticks=10, wait_per_page_ticks=50.0, wait_cap_ticks=40, delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    assert 40 == skipped(h, a)[0]


def test_wait_complete_waits_for_the_sum_of_the_limits(hand):
    """And no longer, although the fetch never ends and its limit ends the hold before."""
    limits = {"lookup_limit": 10, "park_limit": 20, "fetch_limit": 30, "retry_max_reissues": 0}
    h = hand(prefetch_policy=PrefetchPolicy.WAIT_COMPLETE, delays=SLOW_GETS, **limits)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    ticks, _ = skipped(h, a)
    assert 30 == ticks
    assert 60 == h.config.wait_complete_ticks


def test_a_request_that_nobody_visits_does_not_use_its_budget(hand):
    """The clock starts at the first skipped visit, not at arrival."""
    h = hand(wait_base_ticks=20, wait_per_page_ticks=0.0, delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(50)
    assert 20 == skipped(h, a)[0]


def test_the_clock_runs_on_over_a_second_fetch(hand):
    """One budget per attempt, not one per fetch."""
    h = hand(wait_base_ticks=30, wait_per_page_ticks=0.0, pin_fraction=0.0, delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 4)
    a = h.arrive("a", tokens)
    h.tick(2)
    assert isinstance(h.visit(a), Skip)
    h.tick(20)
    h.shrink(tokens, 0)
    assert 10 == skipped(h, a)[0]


def test_a_fetch_that_has_brought_a_usable_head_is_cut_when_the_wait_is_over(hand):
    """The verified head is used at once; the unread tail is a loss named `cut`."""
    h = hand(wait_base_ticks=6, wait_per_page_ticks=0.0)
    h.store.limit(1)
    h.put(h.prompt(20))
    a = h.arrive("a", h.prompt(20))
    h.tick(2)
    ticks, _ = skipped(h, a)
    stats = h.engine.stats()
    assert 6 == ticks
    assert RequestState.COMMITTED is h.engine.state_of(a)
    assert 0 < stats.spliced < 320
    assert {"cut": 320 - stats.spliced} == stats.losses


def test_who_is_covered_waits_for_no_fetch(hand):
    """A sibling has published all that the fetch would bring: the next visit admits."""
    h = hand(delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    assert HoldState.FETCHING is h.hold_of(a).state
    h.grow(h.prompt(8), 8)
    assert (128, 0) == ((admission := h.admit(a)).device_hit_tokens, admission.store_hit_tokens)
    assert {"covered": 128} == h.engine.stats().losses


def test_one_that_waits_blocks_nobody(hand):
    """The next request in the queue is admitted in the same pass."""
    h = hand(delays=SLOW_GETS)
    h.put(h.prompt(8))
    a, b = h.arrive("a", h.prompt(8)), h.arrive("b", h.prompt(8, 2))
    h.tick(2)
    assert isinstance(h.visit(a), Skip)
    assert h.admit(b).admitted


def test_a_waiting_lookup_holds_no_buffer_and_no_pin(hand):
    """A store that is slow to answer costs one token and nothing else."""
    h = hand()
    h.store.stall()
    h.grow(h.prompt(8), 3)
    h.arrive("a", h.prompt(8))
    h.tick(30)
    assert {"query": 1} == h.books()


def test_a_skip_leaves_no_record(hand):
    """Waiting is free: visits that wait take no row."""
    h = hand(delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    h.visit(a)
    h.tick()
    assert b"" == h.engine.last_block().records


def test_select_without_budget_is_a_skip(hand):
    """A pass that may compute nothing admits nobody."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    assert SkipReason.NO_BUDGET is h.engine.select(a, 0).reason


@pytest.mark.parametrize("policy", list(PrefetchPolicy))
def test_a_hit_that_is_ready_is_taken_under_every_policy(hand, policy):
    """The policies differ in waiting only."""
    h = hand(prefetch_policy=policy)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(4)
    assert 128 == h.admit(a).store_hit_tokens


@pytest.mark.parametrize(
    "delays", [SLOW_GETS, Delays(exists=(100, 100), get=(1, 1), put=(1, 1))], ids=["fetch", "lookup"]
)
def test_where_there_is_no_room_nobody_waits_for_the_store(hand, delays):
    """Another request has the device. The clock starts when it has ended, and not at the first visit."""
    h = hand(device_pages=20, largest_request_tokens=300, delays=delays, wait_base_ticks=20, wait_per_page_ticks=0.0)
    h.put(h.prompt(8, 2))
    runs = h.arrive("runs", h.prompt(14, 1))
    assert h.visit(runs).admitted
    a = h.arrive("a", h.prompt(8, 2))
    h.tick(3)
    for _ in range(40):
        assert isinstance(h.visit(a), Skip)
        h.tick()
    h.engine.abort(runs)
    ticks, _ = skipped(h, a)
    assert 20 == ticks
    assert RequestState.COMMITTED is h.engine.state_of(a)


def test_what_comes_while_there_is_no_room_is_a_hit(hand):
    """A fetch of a hundred ticks, a budget of twenty, and a device that is full for longer than both."""
    h = hand(device_pages=20, largest_request_tokens=300, delays=SLOW_GETS, wait_base_ticks=20, wait_per_page_ticks=0.0)
    h.put(h.prompt(8, 2))
    runs = h.arrive("runs", h.prompt(14, 1))
    assert h.visit(runs).admitted
    a = h.arrive("a", h.prompt(8, 2))
    for _ in range(110):
        h.tick()
        assert not getattr(h.visit(a), "admitted", False)
    h.engine.abort(runs)
    assert 128 == h.admit(a).store_hit_tokens
