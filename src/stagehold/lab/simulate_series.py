"""What is noted while a simulation runs: each request's outcome, running sums, and samples over virtual time.

It owns the sums and the samples; it reads the engine through `stats`, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stagehold import Engine, Stats
from stagehold.lab.virtual_runner import VirtualRunner
from stagehold.lab.virtual_store import VirtualStore
from stagehold.serving.scheduler import Admitted

SAMPLES_MAX = 512
FIRST_EVERY_NS = 100_000_000
RETRIES = ("request_due_lookup", "request_due_known", "request_due_too_short", "request_due_declined")
DEFERRALS = ("request_commit_deferred",)
"""Counters, see docs/machines/counters.md."""


@dataclass(slots=True)
class Outcome:
    """One request: times in nanoseconds from its arrival, hits of its first admission in tokens."""

    rid: str
    arrival_ms: int
    prompt_tokens: int
    output_tokens: int
    ideal_hit_tokens: int
    admitted_ns: int | None = None
    ttft_ns: int | None = None
    finished_ns: int = 0
    device_hit_tokens: int = 0
    store_hit_tokens: int = 0
    retractions: int = 0


@dataclass(slots=True)
class Tally:
    """Running sums in tokens, and the outcomes of all requests that ended."""

    finished: int = 0
    device_hit_tokens: int = 0
    store_hit_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    ideal_hit_tokens: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    def admit(self, one: Admitted, outcome: Outcome, after_ns: int) -> None:
        """Count one admission; of a retracted request only the first gives hits."""
        gained = one.admission
        if outcome.admitted_ns is not None:
            self.recomputed_tokens += one.prefill_tokens - gained.hit_tokens
            return
        outcome.admitted_ns = after_ns
        outcome.device_hit_tokens, outcome.store_hit_tokens = gained.device_hit_tokens, gained.store_hit_tokens
        self.device_hit_tokens += gained.device_hit_tokens
        self.store_hit_tokens += gained.store_hit_tokens
        self.ideal_hit_tokens += outcome.ideal_hit_tokens
        self.recomputed_tokens += max(0, outcome.ideal_hit_tokens - gained.hit_tokens)

    def finish(self, outcome: Outcome) -> None:
        """A request has ended."""
        self.finished += 1
        self.outcomes.append(outcome)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: sums since the start in tokens, bytes and times, and levels in pages and requests."""

    seconds: float
    device_hit_tokens: int
    store_hit_tokens: int
    computed_tokens: int
    read_bytes: int
    written_bytes: int
    retries: int
    deferrals: int
    spliced_tokens: int
    lost_tokens: int
    losses: dict[str, int]
    owned: dict[str, int]
    requests: int


class Samples:
    """Samples at equal distances; when there are too many, every second one is dropped and the distance doubles."""

    def __init__(
        self, engine: Engine, store: VirtualStore, runner: VirtualRunner, tally: Tally, page_bytes: int
    ) -> None:
        self.taken: list[Sample] = []
        self.tally = tally
        self.runner = runner
        self.store = store
        self.page_bytes = page_bytes
        self.stats: Stats | None = None
        self.digest = b""
        self._engine = engine
        self._every_ns = FIRST_EVERY_NS
        self._due_ns = 0

    def take_if_due(self, now_ns: int, requests: int) -> None:
        """A sample, if it is time."""
        if now_ns >= self._due_ns:
            self.take(now_ns, requests)
            if len(self.taken) >= SAMPLES_MAX:
                del self.taken[1::2]
                self._every_ns *= 2
            self._due_ns = now_ns + self._every_ns

    def take(self, now_ns: int, requests: int) -> None:
        """A sample now, with so many requests between arrival and end."""
        stats, tally, store = self._engine.stats(), self.tally, self.store
        self.taken.append(
            Sample(
                seconds=now_ns / 1e9,
                device_hit_tokens=tally.device_hit_tokens,
                store_hit_tokens=tally.store_hit_tokens,
                computed_tokens=tally.computed_tokens,
                read_bytes=store.read_pages * self.page_bytes,
                written_bytes=store.written_pages * self.page_bytes,
                retries=times(stats, RETRIES),
                deferrals=times(stats, DEFERRALS),
                spliced_tokens=stats.spliced,
                lost_tokens=sum(stats.losses.values()),
                losses=dict(stats.losses),
                owned=dict(stats.owned),
                requests=requests,
            )
        )

    def end(self) -> None:
        """The last figures, before the engine is closed."""
        self.stats, self.digest = self._engine.stats(), self._engine.digest()

    def columns(self) -> Iterator[tuple[str, list[float]]]:
        """The samples by name, each a column; losses by reason, and levels of what somebody owned by resource."""
        for name in Sample.__slots__:
            if name not in ("losses", "owned"):
                yield name, [getattr(one, name) for one in self.taken]
        for reason in sorted({name for one in self.taken for name in one.losses}):
            yield f"lost_{reason}", [one.losses.get(reason, 0) for one in self.taken]
        for resource in sorted({name for one in self.taken for name in one.owned}):
            yield f"owned_{resource}", [one.owned.get(resource, 0) for one in self.taken]


def times(stats: Stats, counters: tuple[str, ...]) -> int:
    """How often the rows of some counters were taken, together."""
    return sum(stats.count(name).taken for name in counters)
