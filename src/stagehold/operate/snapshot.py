"""One moment of an engine for other threads: taken by the engine's own thread at the end of a tick, never changed.

The engine belongs to one thread, so whoever looks at it from another (a scrape, a live view, a probe) looks at the
last `Snapshot` that a `Feed` has published. Publishing replaces one reference; nothing is locked and nobody waits.
This is the edge, so it reads clocks; the engine does not.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stagehold import AttachmentState, Engine, EngineConfig, Stats, WrongThread
from stagehold.lifecycle.stats import STORED

BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper bounds of the buckets of tick times, in seconds; one more bucket has the rest."""

RATE_SECONDS = 10.0
"""How far back a bandwidth looks, in seconds, or less where there was less."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, each time: `counts` by bucket of `BOUNDS` (one more at the end), and sums in seconds."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sum: float = 0.0
    last: float = 0.0
    most: float = 0.0

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    def plus(self, seconds: float) -> Times:
        """These and one more."""
        place = bisect_left(BOUNDS, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Times(counts, self.sum + seconds, seconds, max(self.most, seconds))


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes a second over the last `RATE_SECONDS`, between the tiers; 0 where no tensors are attached."""

    store_read: float = 0.0
    store_written: float = 0.0
    to_device: float = 0.0
    from_device: float = 0.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The last sign of life: the tick that ended, when (seconds of the monotonic clock), and what it raised, if so."""

    tick: int
    at: float
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One engine at the end of a tick. `at` is monotonic, `wall` since the epoch, both in seconds.

    `stats` was made for this snapshot and is shared with nobody; readers leave it as it is. `lags` are the times
    between the end of one tick and the begin of the next, which the scheduler's pass takes.
    """

    at: float
    wall: float
    config: EngineConfig
    stats: Stats
    attachment: AttachmentState
    durations: Times
    lags: Times
    rates: Rates
    fault: str = ""

    @property
    def tick(self) -> int:
        """Ticks since the start."""
        return self.stats.ticks

    @property
    def breaker(self) -> str:
        """Where the store's breaker stands: healthy, suspect, open, probing, or closed."""
        standing = (name for name, count in self.stats.states.items() if count and name.startswith("store."))
        return next(standing, "store.closed").partition(".")[2]


def moved(stats: Stats) -> tuple[int, int, int, int]:
    """Bytes since the start: read from the store, written to it, to the device and from it."""
    written = sum(stats.count(name).bytes for name in STORED)
    return stats.read.bytes, written, stats.to_device.bytes, stats.from_device.bytes


class Feed:
    """Ticks an engine, times that, and publishes what it looks like. All calls but reading belong to its thread.

    A scheduler calls `feed.tick()` where it would call `engine.tick()`, or, if it cannot, wraps the call in `timing()`;
    before it rests it calls `publish()`, or others go on seeing the work that it has done since the last snapshot.
    `pace_seconds` is the least time between two snapshots, since one costs more than an idle tick; 0: one each tick.
    `latest`, `beat` and `in_tick` may be read from any thread.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        pace_seconds: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.engine = engine
        self._thread = threading.get_ident()
        self._pace = pace_seconds
        self._clock = clock
        self._wall = wall
        self._durations = Times()
        self._lags = Times()
        self._moved: deque[tuple[float, tuple[int, int, int, int]]] = deque()
        self._ended: float | None = None
        self.in_tick = False
        self.beat = Beat(engine.stats().ticks, clock())
        self.latest = self._look()

    def tick(self, *, advance_retries: bool = True) -> None:
        """The engine's tick, then a snapshot."""
        with self.timing():
            self.engine.tick(advance_retries=advance_retries)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Around a tick that somebody else calls. What it raises is noted, published and goes on its way."""
        begun, fault = self._clock(), ""
        if self._ended is not None:
            self._lags = self._lags.plus(begun - self._ended)
        self.in_tick = True
        try:
            yield
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._ended, self.in_tick = self._clock(), False
            self._durations = self._durations.plus(self._ended - begun)
            self.beat = Beat(self.beat.tick + (not fault), self._ended, fault)
            # Where the store stands decides whether there is any load; without that, no tick may come for long.
            turned = self.engine.attachment is not self.latest.attachment
            if fault or turned or self._ended - self.latest.at >= self._pace:
                self.publish()

    def publish(self) -> Snapshot:
        """Take a snapshot now and put it in place of the last one; `WrongThread` in any thread but the engine's."""
        if threading.get_ident() != self._thread:
            here = threading.current_thread().name
            raise WrongThread(
                f"publish() was called from thread {here!r}; only the engine's takes snapshots: read `latest`"
            )
        self.latest = self._look()
        return self.latest

    def _look(self) -> Snapshot:
        now, stats = self._clock(), self.engine.stats()
        return Snapshot(
            at=now,
            wall=self._wall(),
            config=self.engine.config,
            stats=stats,
            attachment=self.engine.attachment,
            durations=self._durations,
            lags=self._lags,
            rates=self._rates(now, moved(stats)),
            fault=self.beat.fault,
        )

    def _rates(self, now: float, bytes_: tuple[int, int, int, int]) -> Rates:
        """Against the oldest look that is not too old; two looks at least."""
        self._moved.append((now, bytes_))
        while len(self._moved) > 2 and now - self._moved[1][0] >= RATE_SECONDS:
            self._moved.popleft()
        then, before = self._moved[0]
        if now <= then:
            return Rates()
        return Rates(*((new - old) / (now - then) for new, old in zip(bytes_, before, strict=True)))
