"""K84: a request was sent back while its pages were being stored; when it was admitted again, an assertion ended all.

The record of the store in flight was keyed by the request. Here a write belongs to a span of the tree, no attempt owns
it, and the next attempt finds its pages on the device, on their way, or in the store.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand
from stagehold.testing.watched import LateCopies

STAGES = range(14)
"""Ticks after the publication: queued, copying (3), storing (5), stored."""


def writer(hand) -> tuple[Hand, object]:
    """A request has published eight pages, of sevens, and runs on."""
    h = hand(
        parts=2,
        page_part_bytes=32,
        staging_pages=80,
        delays=Delays(exists=(1, 1), get=(1, 1), put=(5, 5)),
        engine_options={"copies": LateCopies(0, (3, 3))},
    )
    a = h.arrive("a", h.prompt(8), new=20)
    h.admit(a)
    slots = list(h.engine.extend(a, 129).slots)
    h.core.tensors.device.tensor[:, slots] = 7
    h.engine.publish(a, 129)
    return h, a


def test_the_stages_are_all_of_a_write_s_life(hand):
    """What the numbers of ticks below mean."""
    h, _ = writer(hand)
    seen = []
    for _ in STAGES:
        seen += [w.state for w in h.core.writes.values()] or ["over"]
        h.tick()
    assert {WriteState.QUEUED, WriteState.COPYING, WriteState.STORING, "over"} == set(seen)


@pytest.mark.parametrize("after", STAGES)
def test_the_next_attempt_is_admitted_with_the_pages_at_any_moment_of_their_write(hand, after):
    """They are live; the write goes on, ends, and is not begun a second time."""
    h, a = writer(hand)
    h.tick(after)
    again = h.engine.retract(a)
    admission = h.admit(again)
    assert 128 == admission.device_hit_tokens
    h.compute(again)
    h.engine.finish(again)
    h.until(lambda: not h.core.writes, 60)
    assert (8, 1) == (h.engine.stats().stored_pages, h.engine.stats().count("write_put_ended_stored").taken)
    assert {7} == {value for name in h.names(h.prompt(8)) for value in h.store.medium.read(name)[-64:]}


@pytest.mark.parametrize("after", range(4, 10))
def test_where_the_pages_have_left_the_device_the_next_attempt_waits_for_their_write(hand, after):
    """It asks too early, is told nothing, and is woken by the acknowledgement."""
    h, a = writer(hand)
    h.tick(after)
    again = h.engine.retract(a)
    h.core.tree.evict(10**6)
    assert 0 == h.live(h.prompt(8))
    h.until_state(again, RequestState.STAGED, patience=30)
    h.tick(2)
    admission = h.admit(again)
    assert 128 == admission.store_hit_tokens
    assert {7} == set(h.core.tensors.device.tensor[:, list(admission.slots)].flatten().tolist())


def test_ten_preemptions_of_one_request_leave_one_write(hand):
    """Each attempt publishes what the one before had."""
    h, a = writer(hand)
    for _ in range(10):
        a = h.engine.retract(a)
        h.admit(a)
        h.compute(a)
        h.tick()
    h.engine.finish(a)
    h.until(lambda: not h.core.writes, 60)
    assert (10, 8) == (a.attempt, h.engine.stats().stored_pages)
