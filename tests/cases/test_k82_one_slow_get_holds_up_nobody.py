"""K82: once in a while a get took 60 seconds, and its request stood still as long.

Here the wait for a fetch is bounded in passes; the request is computed, and the late bytes land in a buffer that
belongs to their operation until it is over.
"""

from __future__ import annotations

from stagehold import RequestState
from stagehold.cache.stores.simulated import NEVER
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand

MINUTE = 6_000
"""Ticks of ten milliseconds."""


def one_slow_get(hand, **settings) -> tuple[Hand, object, object]:
    """A fetch that takes a minute, in front of a store that is fast for everybody else."""
    h = hand(parts=2, page_part_bytes=32, **settings)
    h.put(h.prompt(8), body=bytes([111]) * 64)
    a = h.arrive("slow", h.prompt(8))
    h.tick(2)
    hold = h.hold_of(a)
    assert HoldState.FETCHING is hold.state
    h.store._due[hold.data.operation] = NEVER
    return h, a, hold


def test_its_request_waits_for_its_budget_and_no_longer(hand):
    """32 ticks, and a quarter of one for each page; then it is computed."""
    h, a, _ = one_slow_get(hand)
    h.tick()
    assert 34 == h.until(lambda: getattr(h.visit(a), "admitted", False), 60)
    assert (RequestState.COMMITTED, 0) == (h.engine.state_of(a), h.machine(a).data.n_tokens)


def test_everybody_else_is_served_from_the_store_meanwhile(hand):
    """Fifty requests, three ticks each, while the slow one flies."""
    h, _, hold = one_slow_get(hand)
    for number in range(50):
        tokens = h.prompt(8, number + 2)
        h.put(tokens, body=bytes([200]) * 64)
        other = h.arrive(f"r{number}", tokens)
        h.tick(3)
        admission = h.admit(other)
        assert 128 == admission.store_hit_tokens
        assert {200} == set(h.core.tensors.device.tensor[:, list(admission.slots)].flatten().tolist())
        h.engine.abort(other)
        h.shrink(tokens, 0)
    assert hold.state in (HoldState.FETCHING, HoldState.DRAINING)


def test_the_late_bytes_go_nowhere(hand):
    """The request was computed long ago, and finished; when the get ends its pages go back, and nobody reads them."""
    h, a, hold = one_slow_get(hand)
    h.until(lambda: getattr(h.visit(a), "admitted", False), 60)
    slots = list(h.engine.extend(a, 129).slots)
    h.core.tensors.device.tensor[:, slots] = 5
    h.engine.publish(a, 129)
    h.engine.finish(a)
    for _ in range(MINUTE // 100):
        h.engine.tick()
    assert (HoldState.DRAINING, 8) == (hold.state, h.core.staging.used)
    assert {"staging": 8, "io": 1} == h.books()
    h.store.release()
    h.tick()
    assert (HoldState.DROPPED, 0, {}) == (hold.state, h.core.staging.used, h.books())
    again = h.run("again", h.prompt(8))
    assert {5} == set(h.core.tensors.device.tensor[:, list(again.slots)].flatten().tolist())


def test_a_request_that_nobody_visits_is_freed_by_the_limit_of_the_fetch(hand):
    """It goes to a retry, its end still known, and is fetched again by an operation of its own."""
    h, a, hold = one_slow_get(hand, fetch_limit=20, retry_interval_ticks=4)
    h.until(lambda: hold.state is HoldState.DRAINING, 30)
    h.until_state(a, RequestState.STAGED, patience=10)
    h.tick(3)
    admission = h.admit(a)
    assert 128 == admission.store_hit_tokens
    assert {111} == set(h.core.tensors.device.tensor[:, list(admission.slots)].flatten().tolist())
