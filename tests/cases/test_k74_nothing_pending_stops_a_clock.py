"""K74: while a second pool was still pending, the timeout of the first one did not run; the request waited for ever.

Here a hold has one state for everything that it brings, each waiting state has one clock, and the clock is armed on
entry: neither progress, nor company, nor a visit that is given back winds it up again.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.clock import Clock
from stagehold.machines import MACHINES
from stagehold.specs.declare import Kind
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand

LIMIT = 20


def slow_fetch(build) -> tuple[Hand, object]:
    """A fetch of thirty pages at one page a tick: it moves at every tick, and is not done at its limit."""
    h = build(fetch_limit=LIMIT, load_limit_fraction=1.0)
    h.put(h.prompt(30))
    a = h.arrive("a", h.prompt(30))
    h.tick()
    h.store.limit(1)
    h.tick()
    assert HoldState.FETCHING is h.hold_of(a).state
    return h, a


def ticks_to_its_end(h: Hand, a, disturb=lambda: None) -> int:
    """Ticks until the fetch is cut, with something done before each."""
    hold = h.hold_of(a)
    for ticks in range(1, 3 * LIMIT):
        disturb()
        h.tick()
        if hold.state is not HoldState.FETCHING:
            return ticks
    raise AssertionError("the fetch has no end")


def test_progress_does_not_wind_the_clock(hand):
    """A page arrives at every tick, and at the limit the fetch is cut to what is there."""
    h, a = slow_fetch(hand)
    assert LIMIT == ticks_to_its_end(h, a)
    assert HoldState.READY is h.hold_of(a).state
    assert LIMIT - 2 <= h.hold_of(a).data.last <= LIMIT


def test_company_does_not_wind_the_clock(hand):
    """Another request joins the fetch every third tick."""
    h, a = slow_fetch(hand)
    count = iter(range(1000))

    def join():
        number = next(count)
        if number % 3 == 0:
            h.arrive(f"joins{number}", h.prompt(30))

    assert LIMIT == ticks_to_its_end(h, a, join)
    assert len(h.hold_of(a).data.claims) > 3


def test_visits_do_not_wind_the_clock(hand):
    """Each is skipped, and nothing moves."""
    h, a = slow_fetch(hand)
    assert LIMIT == ticks_to_its_end(h, a, lambda: h.engine.select(a, 100))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda spec: spec.name)
def test_a_state_that_waits_has_a_row_for_its_clock_whatever_is_pending(machine):
    """One event, and each of its outcomes leads somewhere: no row says "not yet"."""
    for state in machine.states:
        if state.kind is not Kind.WAITING or state.deadline is None:
            continue
        rows = [row for row in machine.expanded() if row.source is state.name and row.event == state.deadline.event]
        assert rows
        if state.name is not RequestState.RETRY:
            assert all(row.target is not state.name for row in rows)


def test_a_hung_write_ends_by_its_clock_while_everything_else_goes_on(hand):
    """Its buffer stays the store's; nobody waits for it."""
    h = hand(put_limit=LIMIT, delays=Delays(exists=(1, 1), get=(1, 1), put=(10**6, 10**6)))
    h.run("a", h.prompt(4))
    h.tick(3)
    (write,) = h.core.writes.values()
    assert LIMIT - 2 <= h.until(lambda: write.state.name == "DRAINING", 3 * LIMIT) <= LIMIT
    assert 0 == h.books().get("backlog", 0)


def test_a_clock_that_is_wound_up_by_progress_would_be_seen(hand, monkeypatch):
    """Planted: a page that arrives arms the limit anew. The fetch runs on to its last page."""
    h, a = slow_fetch(hand)
    hold = h.hold_of(a)

    def wind():
        if hold.state is HoldState.FETCHING:
            h.core.clock.arm("hold", hold, (HoldState.FETCHING, "cut"), LIMIT)

    assert isinstance(h.core.clock, Clock)
    assert LIMIT < ticks_to_its_end(h, a, wind)
