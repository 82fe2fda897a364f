"""What a trace holds, before anything is replayed: lengths, reuse, its distance, and how often prefixes race.

It owns the figures and their names. A block counts for what it holds when the prompt fills it; times are arrivals, so
a prefix is produced when the first request that has it arrives, which is as early as any server could have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold.lab.stats_prefixes import NOTHING, Prefixes
from stagehold.lab.traces import TraceError, TraceRequest

RACE_SECONDS = (1, 5, 30, 120)
CACHE_SHARES = (1, 5, 10, 25, 50, 100)
"""Sizes of a cache, in per cent of the working set, at which its hits are told."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How figures spread, by nearest rank; all zero where there are none."""

    total: int
    mean: float
    p50: int
    p90: int
    p99: int
    most: int


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Tokens unless the name says otherwise.

    `ideal_hit_tokens` is what a cache that never forgets would hit, whole blocks only and a token always left to
    compute. `reuse_distance_tokens` is, for each block that was seen before, how much of other blocks was used since.
    `lru_hit_rates` says by per cent of the working set what a cache of that size, least recently used first out,
    would hit; `produced_within` how many requests want a prefix that was first produced so few seconds before.
    """

    requests: int
    sessions: int
    seconds: float
    distinct_arrivals: int
    most_at_once: int
    block_tokens: int
    prompt_tokens: Spread
    output_tokens: Spread
    ideal_hit_tokens: int
    requests_with_a_hit: int
    working_set_tokens: int
    reuse_distance_tokens: Spread
    lru_hit_rates: dict[int, float]
    produced_within: dict[int, int]

    @property
    def ideal_hit_rate(self) -> float:
        """Ideal hit tokens over prompt tokens."""
        return self.ideal_hit_tokens / max(1, self.prompt_tokens.total)

    def as_json(self) -> dict[str, Any]:
        """The fields by name, the keys of tables as texts."""
        found = asdict(self)
        for table in ("lru_hit_rates", "produced_within"):
            found[table] = {str(key): value for key, value in found[table].items()}
        return {**found, "ideal_hit_rate": self.ideal_hit_rate}


@dataclass(frozen=True, slots=True)
class _Seen:
    """One request as it was met: what of it was known, and how long ago the last known block had been produced."""

    arrival_ms: int
    prompt: int
    output: int
    hit: int
    gap_ms: int


def trace_stats(requests: Iterable[TraceRequest], path: Path) -> TraceStats:
    """Read all requests once; `TraceError` about `path` where there are none, or their blocks differ in size."""
    prefixes, sessions = Prefixes(), set[str]()
    rows: list[_Seen] = []
    distances, weights = [NOTHING], [NOTHING]
    size = 0
    for request in _of_one_size(requests, path):
        size = request.block_tokens
        sessions.add(request.session or f"\0{len(rows)}")
        use = prefixes.use(request.whole_blocks, request.arrival_ms)
        hit = min(use.known, max(0, request.prompt_tokens - 1) // size) * size
        gap = request.arrival_ms - use.produced_ms
        rows.append(_Seen(request.arrival_ms, request.prompt_tokens, request.output_tokens, hit, gap))
        distances.append(use.distances * size)
        weights.append(use.blocks)
    if not rows:
        raise TraceError(path, 0, "at least one request", "none")
    return _figures(
        rows, len(sessions), len(prefixes) * size, size, (np.concatenate(distances), np.concatenate(weights))
    )


def _of_one_size(requests: Iterable[TraceRequest], path: Path) -> Iterator[TraceRequest]:
    size = 0
    for request in requests:
        size = size or request.block_tokens
        if request.block_tokens != size:
            raise TraceError(path, request.line, f"blocks of {size} tokens throughout", str(request.block_tokens))
        yield request


def _figures(
    rows: list[_Seen], sessions: int, working_set: int, size: int, reuse: tuple[npt.NDArray[np.int64], ...]
) -> TraceStats:
    arrivals = Counter(row.arrival_ms for row in rows)
    gaps = [row.gap_ms for row in rows if row.hit]
    prompts = np.array([row.prompt for row in rows])
    distances, weights = reuse
    return TraceStats(
        requests=len(rows),
        sessions=sessions,
        seconds=(rows[-1].arrival_ms - rows[0].arrival_ms) / 1000,
        distinct_arrivals=len(arrivals),
        most_at_once=max(arrivals.values()),
        block_tokens=size,
        prompt_tokens=spread(prompts),
        output_tokens=spread(np.array([row.output for row in rows])),
        ideal_hit_tokens=sum(row.hit for row in rows),
        requests_with_a_hit=len(gaps),
        working_set_tokens=working_set,
        reuse_distance_tokens=spread(distances, weights),
        lru_hit_rates={
            share: float(weights[distances * 100 < share * working_set].sum() * size / max(1, prompts.sum()))
            for share in CACHE_SHARES
        },
        produced_within={bound: sum(gap <= 1000 * bound for gap in gaps) for bound in RACE_SECONDS},
    )


def spread(values: npt.NDArray[np.int64], weights: npt.NDArray[np.int64] | None = None) -> Spread:
    """Sum, mean and percentiles of whole numbers, each counted `weights` times."""
    if not len(values):
        return Spread(0, 0.0, 0, 0, 0, 0)
    weights = np.ones(len(values), dtype=np.int64) if weights is None else weights
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    count, total = int(upto[-1]), int((values * weights).sum())

    def rank(share: float) -> int:
        return int(values[order[np.searchsorted(upto, share * count)]])

    return Spread(total, total / count, rank(0.5), rank(0.9), rank(0.99), int(values.max()))
