"""Whether an engine is alive, and whether it is ready: told from its ticks, its store and the memory that is left.

A process that answers says nothing of its scheduler, so liveness is read from the ticks: they go on as long as there
is work. Owns these two judgements; everything is read from what the feed has published, from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stagehold import AttachmentState
from stagehold.operate.doctor.machine import ROOT, least
from stagehold.operate.snapshot import Feed

RESTING = ("open", "probing")
"""States of the breaker in which the store is not asked."""


@dataclass(frozen=True, slots=True)
class Health:
    """A judgement: `reasons` say why not; `notes` are worth knowing and change nothing."""

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tick: int = 0
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """When an engine counts as stuck or not ready.

    `stale_seconds` is the longest pass of a scheduler that is well. Without `needs_store` an engine whose store is
    down is ready, since it computes what it cannot fetch; with it, load goes to servers whose store answers.
    """

    stale_seconds: float = 30.0
    needs_store: bool = False
    least_memory_bytes: int = 256 << 20


class Vitals:
    """Both judgements of the engine behind a feed."""

    def __init__(
        self,
        feed: Feed,
        policy: Policy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        root: Path = ROOT,
    ) -> None:
        self._feed = feed
        self._policy = policy or Policy()
        self._clock = clock
        self._root = root

    def alive(self) -> Health:
        """Ticks go on while there is work, and the last one raised nothing."""
        beat = self._feed.beat
        age = self._clock() - beat.at
        reasons = []
        if beat.fault:
            reasons.append(f"the last tick raised {beat.fault}")
        if age > self._policy.stale_seconds and (self._feed.in_tick or self._feed.engine.stats().live_machines):
            where = "inside a tick" if self._feed.in_tick else "between ticks, with work waiting"
            reasons.append(f"tick {beat.tick} ended {age:.1f} s ago, and the scheduler is {where}")
        return Health(not reasons, tuple(reasons), (), beat.tick, age)

    def ready(self) -> Health:
        """Alive, past the store's self-test, and with memory left."""
        alive, seen = self.alive(), self._feed.latest
        reasons = [*alive.reasons]
        notes: list[str] = []
        if seen.attachment is AttachmentState.ATTACHING:
            reasons.append("the store's self-test has not ended")
        missing = [] if seen.attachment is AttachmentState.ATTACHED else [f"no store: {seen.attachment.name.lower()}"]
        if seen.breaker in RESTING and not missing:
            missing = [f"the store is {seen.breaker}: it fails, and is not asked"]
        (reasons if self._policy.needs_store else notes).extend(missing)
        room = least(self._root)
        if room.available < self._policy.least_memory_bytes:
            reasons.append(f"{room.available >> 20} MiB of memory are left by {room.said_by}")
        return Health(not reasons, tuple(reasons), tuple(notes), alive.tick, alive.age_seconds)
