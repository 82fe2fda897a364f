"""An armed retry is consumed once, and no exit leaves one behind: every cause of arming, every way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagehold import AttachmentState, Handle, RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.outcomes import Launch
from stagehold.specs.store import StoreState
from stagehold.testing.hand import AT_ONCE, Hand

RETRY, CAPPED, STAGED = RequestState.RETRY, RequestState.CAPPED, RequestState.STAGED
DUE = [f"request.retry.due.{member.name}" for member in Launch]


def miss(h: Hand) -> Handle:
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    return a


def below_threshold(h: Hand) -> Handle:
    h.put(h.prompt(8), 0, 1)
    return miss(h)


def silence(h: Hand) -> Handle:
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    h.store.release()
    return a


def declined(h: Hand) -> Handle:
    """The queue's head is launched past the load limit only when a lookup is what is rationed."""
    h.store.stall()
    for family in range(2, 2 + h.config.query_limit):
        h.arrive(f"asks-{family}", h.prompt(8, family))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    h.store.release()
    return a


def expired(h: Hand) -> Handle:
    h.put(h.prompt(8))
    h.store._delays = Delays(exists=(1, 1), get=(200, 200), put=(1, 1))
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    h.store._delays = AT_ONCE
    h.store.release()
    return a


def failed(h: Hand) -> Handle:
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    for name in h.names(h.prompt(8)):
        h.store.drop(name)
    h.tick()
    return a


def outage(h: Hand) -> Handle:
    """No timer: the store's recovery sends it."""
    h.outage()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert StoreState.OPEN is h.core.breaker.state
    return a


CAUSES: dict[str, tuple[Callable[[Hand], Handle], str]] = {
    "a miss": (miss, "request.lookup.answer.MISS"),
    "an answer below the threshold": (below_threshold, "request.lookup.answer.BELOW_THRESHOLD"),
    "a silent store": (silence, "request.lookup.timeout"),
    "a declined launch": (declined, "request.queued.issue.DECLINED"),
    "an expired hold": (expired, "request.staged.hold_ended.EXPIRED"),
    "a failed fetch": (failed, "request.staged.hold_ended.FAILED"),
    "an outage": (outage, "request.queued.issue.STORE_OPEN"),
}
"""What arms a retry, and the row that does it. A loss arms and fires in one cascade; `test_retries` has those."""


def rules(h: Hand) -> Any:
    return h.engine._parts.retries


def armed(h: Hand) -> tuple[int, int, int]:
    """Timers, retries that wait for the store's recovery, and those that a write may wake."""
    return h.core.pacing.armed, len(rules(h).untimed), sum(map(len, rules(h).waiting.values()))


@pytest.fixture
def in_retry(hand: Callable[..., Any]) -> Callable[[str], tuple[Hand, Handle]]:
    """An engine with a request that a cause has brought to `retry`, and with nobody else."""

    def build(cause: str) -> tuple[Hand, Handle]:
        h = hand(lookup_limit=10, fetch_limit=20, query_limit=4, retry_interval_ticks=50)
        a = CAUSES[cause][0](h)
        assert RETRY is h.engine.state_of(a)
        for m in list(h.core.requests.values()):
            if m.data.handle != a:
                h.engine.abort(m.data.handle)
        assert 1 == armed(h)[0] + armed(h)[1]
        return h, a

    return build


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_the_row_that_it_says(in_retry, cause):
    """The table above is true."""
    h, _ = in_retry(cause)
    h.tick()
    assert 1 <= h.taken(CAUSES[cause][1])


@pytest.mark.parametrize("cause", CAUSES)
def test_admission_clears_what_was_armed(in_retry, cause):
    """And waits for nothing."""
    h, a = in_retry(cause)
    h.admit(a)
    assert (0, 0, 0) == armed(h)


@pytest.mark.parametrize("cause", CAUSES)
def test_abort_clears_what_was_armed(in_retry, cause):
    """No timer outlives its request."""
    h, a = in_retry(cause)
    h.engine.abort(a)
    assert (0, 0, 0) == armed(h)
    h.tick(60)


@pytest.mark.parametrize("cause", CAUSES)
def test_detach_clears_what_was_armed(in_retry, cause):
    """The retry is due at once, and finds that there is no store."""
    h, a = in_retry(cause)
    h.engine.detach()
    assert (0, 0, 0) == armed(h)
    assert CAPPED is h.engine.state_of(a)
    h.store.release()
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 600)
    assert h.admit(a).admitted


@pytest.mark.parametrize("cause", CAUSES)
def test_shutdown_clears_what_was_armed(in_retry, cause):
    """Whatever waits is aborted."""
    h, _ = in_retry(cause)
    retries = rules(h)
    h.engine.close()
    assert (0, 0, 0) == (h.core.pacing.armed, len(retries.untimed), len(retries.waiting))


@pytest.mark.parametrize("cause", CAUSES)
def test_flush_leaves_one_retry_that_is_consumed_once(in_retry, cause):
    """A flush empties the tree and no queue: what was armed stays what it was, and is not armed again."""
    h, a = in_retry(cause)
    before = armed(h)
    h.engine.flush()
    assert (before, RETRY) == (armed(h), h.engine.state_of(a))
    issues = h.machine(a).issues
    h.put(h.prompt(8))
    h.until(lambda: h.machine(a).issues > issues)
    h.until_state(a, STAGED, RequestState.LOOKUP)
    h.tick(100)
    assert (0, 0, 0) == armed(h)
    assert 1 == sum(map(h.taken, DUE))


@pytest.mark.parametrize("interval", [0, 8])
def test_a_retry_that_finds_no_launch_left_leaves_nothing_armed(hand, interval):
    """CAP: the timer is gone, and no write wakes the request any more."""
    h = hand(retry_interval_ticks=interval, retry_max_reissues=0)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    rules(h).send_due(h.machine(a))
    assert (CAPPED, (0, 0, 0)) == (h.engine.state_of(a), armed(h))


def test_a_tick_that_only_polls_a_copy_does_not_advance_retries(hand):
    """A retry counts passes that could have admitted; every other clock counts all ticks."""
    h = hand(retry_interval_ticks=8)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RETRY)
    for _ in range(20):
        h.engine.tick(advance_retries=False)
    assert RETRY is h.engine.state_of(a)
    assert 8 == h.until_state(a, RequestState.LOOKUP)


def test_a_tick_that_only_polls_a_copy_drains(hand):
    """What has ended becomes events, and deadlines fall."""
    h = hand(ready_limit=5)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    for _ in range(3):
        h.engine.tick(advance_retries=False)
    assert STAGED is h.engine.state_of(a)
    assert h.hold_of(a).state.name == "READY"
    for _ in range(5):
        h.engine.tick(advance_retries=False)
    assert RETRY is h.engine.state_of(a)
