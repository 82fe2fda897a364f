"""What every replay does around the scheduler: the store's self-test before, then arrivals by the trace's own clock.

It owns the clock: a pass stands for a fixed stretch of trace time, and idle gaps are skipped. Submitting who comes and
making the pass are the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from stagehold import AttachmentState, Engine
from stagehold.lab.expand import ReplayRequest
from stagehold.serving.scheduler import Scheduler


class StoreUnusable(RuntimeError):
    """The store did not pass its self-test."""


def warm_up(engine: Engine) -> None:
    """Let the store's self-test pass, as a server does before it takes requests."""
    while engine.attachment is AttachmentState.ATTACHING:
        engine.tick()
    if engine.attachment is not AttachmentState.ATTACHED:
        raise StoreUnusable(f"the store failed its self-test: the link is {engine.attachment.name.lower()}")


def passes(scheduler: Scheduler, requests: Sequence[ReplayRequest], pass_ms: int) -> Iterator[list[ReplayRequest]]:
    """Who comes before each pass, until all have come and nobody waits or runs any more."""
    coming = deque(requests)
    now_ms = 0
    while coming or not scheduler.idle:
        if scheduler.idle:
            now_ms = max(now_ms, coming[0].arrival_ms)
        here = []
        while coming and coming[0].arrival_ms <= now_ms:
            here.append(coming.popleft())
        yield here
        now_ms += pass_ms
