"""K06: the prefill side of a split server stopped answering health checks at four requests in flight.

Its loop looked at the store only when it had somebody to schedule, so that with an empty queue nothing was ever
drained. Here the tick is the first act of every pass of every loop, whoever waits.
"""

from __future__ import annotations

import pytest

from stagehold import Namespace
from stagehold.cache.stores.simulated import Delays
from stagehold.serving.loops import PrefillLoop
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler
from stagehold.testing.hand import Hand

LAYOUT = Layout(layers=1, token_part_bytes=16, page_size=16)
SPACE = Namespace("loops")
SHAPES = {
    "normal": lambda h, runner: Scheduler(h.engine, runner),
    "overlapped": lambda h, runner: Scheduler(h.engine, runner, in_flight=1),
    "pipeline of four": lambda h, runner: Scheduler(h.engine, runner, in_flight=3),
    "prefill": lambda h, runner: PrefillLoop(h.engine, runner, transfer_passes=3),
}


def server(hand, shape: str):
    """An engine with bytes, its runner, and a loop of this shape."""
    slow_puts = Delays(exists=(1, 1), get=(1, 1), put=(6, 6))
    h = hand(parts=LAYOUT.parts, page_part_bytes=LAYOUT.page_part_bytes, delays=slow_puts)
    runner = PatternRunner(LAYOUT, h.engine.device_bytes.tensor)
    return h, runner, SHAPES[shape](h, runner)


def four_at_once(h: Hand, loop) -> None:
    """Four prompts in flight together, until none of them is left."""
    for family in range(1, 5):
        more = () if isinstance(loop, PrefillLoop) else (1,)
        loop.submit(f"r{h.now}-{family}", h.prompt(6, family), SPACE, *more)
    for _ in range(100):
        if loop.idle:
            return
        loop.step()
    raise AssertionError("the loop is wedged")


@pytest.mark.parametrize("shape", SHAPES)
def test_an_idle_loop_drains_what_the_last_requests_left(hand, shape):
    """Their writes end, and staging is whole again, without anybody in the queue."""
    h, runner, loop = server(hand, shape)
    four_at_once(h, loop)
    assert h.core.writes
    for _ in range(12):
        loop.step()
    assert ({}, h.config.staging_pages) == (h.books(), h.core.staging.free_count)
    assert 24 == h.engine.stats().stored_pages
    assert (0, 0) == (runner.wrong_bytes, runner.phantom_tokens)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_loop_that_ticks_for_a_queue_only_would_keep_staging(hand, shape):
    """Planted: a pass with an empty queue returns at once, as the one of the report did."""
    h, _, loop = server(hand, shape)
    step = loop.step
    loop.step = lambda: None if loop.idle else step()
    four_at_once(h, loop)
    for _ in range(50):
        loop.step()
    assert h.core.writes
    assert h.books()["staging" if shape == "prefill" else "backlog"]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_pass_is_a_tick(hand, shape):
    """Whoever watches the count of ticks sees the loop alive, idle or not."""
    h, _, loop = server(hand, shape)
    four_at_once(h, loop)
    for _ in range(3):
        before = h.engine.stats().ticks
        loop.step()
        assert before + 1 == h.engine.stats().ticks
