"""K76: a finished prefetch was noticed only when the scan of the waiting queue reached its request.

Behind a long queue, staging stayed taken and the limits ran on bytes that had long arrived. Here each tick applies
everything that ended, before anybody is visited and whether anybody is.
"""

from __future__ import annotations

import pytest

from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand


def queue_of(h: Hand, length: int):
    """A queue of requests, of which the last one's pages are stored."""
    handles = [h.arrive(f"r{number}", h.prompt(4, number + 1)) for number in range(length - 1)]
    tokens = h.prompt(4, 900)
    h.put(tokens)
    return [*handles, h.arrive("last", tokens)]


@pytest.mark.parametrize("length", [1, 10, 60])
def test_the_last_in_the_queue_is_ready_as_soon_as_the_first_would_be(hand, length):
    """Three ticks, whatever the length, and without a visit to anybody."""
    h = hand()
    last = queue_of(h, length)[-1]
    h.tick(3)
    assert HoldState.READY is h.hold_of(last).state
    assert 64 == h.admit(last).store_hit_tokens


def test_buffers_of_ended_fetches_go_back_without_a_visit(hand):
    """Aborted ones drain in the tick in which their IO ends."""
    h = hand()
    last = queue_of(h, 30)[-1]
    h.tick(2)
    h.engine.abort(last)
    h.tick()
    assert h.config.staging_pages == h.core.staging.free_count


def test_events_drain_with_an_empty_queue_too(hand):
    """Writes end although nobody waits and nobody runs."""
    h = hand()
    h.run("a", h.prompt(8))
    h.until(lambda: not h.core.writes, 10)
    assert 8 == h.engine.stats().stored_pages


def test_an_idle_queue_costs_no_look_at_each_tick(hand):
    """A tick in which nothing ends leaves an empty block, with sixty requests waiting."""
    h = hand(retry_interval_ticks=0)
    queue_of(h, 60)
    h.tick(4)
    h.tick()
    assert b"" == h.engine.last_block().records
