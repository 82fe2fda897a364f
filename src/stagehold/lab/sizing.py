"""How little host memory and how slow a link to the store a trace needs: a search over simulations, on a grid.

It owns the grid, the bar and the search. What is assumed is that more of either never hurts; so a few simulations tell
the whole staircase of pairs that will do. Those next to the answer are simulated, too, so that it does not rest on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, floor, log2
from typing import Any

from stagehold.lab.cell_options import OptionError, cell_of
from stagehold.lab.cells import Cell
from stagehold.lab.policies.shipped import LIVE, policy_named
from stagehold.lab.virtual_costs import PASS_MS

STEPS_MAX = 40
"""Values of either size on the grid."""

Record = Mapping[str, Any]
RunAll = Callable[[Sequence[Cell]], Sequence[Record]]
"""Cells in, their records out, in the same order."""
Place = tuple[int, int]
"""Of a pair on the grid: host memory, then link, both from the smallest."""
Ask = Callable[[Sequence[Place]], Sequence[bool]]


class Judge(StrEnum):
    """What has to be within the bar."""

    HITS = "hits"
    TTFT = "ttft"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Bar:
    """What makes a run good enough.

    Hit tokens of at least 1 - `within` of the ideal, and a median time to first token of at most 1 + `within` times
    that of the largest pair, or of one pass more than that, since times are no finer. Where the largest pair reaches
    less of the ideal, `reachable` is what it reaches, and hit tokens are measured against that.
    """

    within: float
    judge: Judge = Judge.BOTH
    reachable: float = 1.0

    def holds(self, run: Record, largest: Record) -> bool:
        """Whether `run` is good enough."""
        hits = reached(run) >= (1 - self.within) * self.reachable
        wait, best = float(run["ttft_ms"]["p50"]), float(largest["ttft_ms"]["p50"])
        soon = wait <= max(best * (1 + self.within), best + PASS_MS)
        return {Judge.HITS: hits, Judge.TTFT: soon, Judge.BOTH: hits and soon}[self.judge]


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that are looked at, ascending: GB of host memory, GB a second of the link."""

    host_gb: tuple[float, ...]
    store_gbps: tuple[float, ...]

    @property
    def top(self) -> Place:
        """The largest pair."""
        return len(self.host_gb) - 1, len(self.store_gbps) - 1


@dataclass(frozen=True, slots=True)
class Sized:
    """What a search found. `stairs` gives for each host memory the place of the slowest link that will do, or None.

    `runs` are the records of all pairs that were simulated, by place. The pairs next to the answer are among them, and
    are not good enough; `even` says whether the answer is where the search led to.
    """

    grid: Grid
    bar: Bar
    runs: Mapping[Place, Record]
    stairs: tuple[int | None, ...]
    answer: Place
    even: bool

    @property
    def largest(self) -> Record:
        """The run that the others are measured against."""
        return self.runs[self.grid.top]

    def holds(self, place: Place) -> bool:
        """Whether a pair that was simulated is good enough."""
        return self.bar.holds(self.runs[place], self.largest)

    @property
    def contradictions(self) -> int:
        """How often a simulated pair is good enough and one with more of either is not."""
        good = [place for place in self.runs if self.holds(place)]
        poor = [place for place in self.runs if not self.holds(place)]
        return sum(less[0] <= more[0] and less[1] <= more[1] for less in good for more in poor)


def size(options: Mapping[str, Any], grid: Grid, bar: Bar, run_all: RunAll) -> Sized:
    """Search the grid; `options` are those of every cell. The same options give the same answer.

    `OptionError` where nothing is brought back, so that no size matters.
    """
    if not (options.get("store", True) and policy_named(options.get("policy", LIVE.name)).tier):
        raise OptionError(
            "--policy none, --store false: expected a store that pages come back from, to find sizes for it"
        )
    runs: dict[Place, Record] = {}

    def ask(places: Sequence[Place]) -> list[bool]:
        missing = [place for place in dict.fromkeys(places) if place not in runs]
        pairs = [{"host_gb": grid.host_gb[row], "store_gbps": grid.store_gbps[column]} for row, column in missing]
        runs.update(zip(missing, run_all([cell_of({**options, **pair}) for pair in pairs]), strict=True))
        return [bar.holds(runs[place], runs[grid.top]) for place in places]

    if not ask([grid.top])[0]:
        bar = replace(bar, reachable=reached(runs[grid.top]))
    stairs = staircase(len(grid.host_gb), len(grid.store_gbps), ask)
    answer, even = settled(_balanced(grid, stairs), ask)
    return Sized(grid, bar, runs, tuple(stairs), answer, even)


def staircase(rows: int, columns: int, ask: Ask) -> list[int | None]:
    """For each row the first column that is true, where truth only spreads with growing rows and columns.

    The middle row is halved first; it bounds the rows above and below, which are then halved at the same time, so
    that independent questions are asked together.
    """
    first: dict[int, int] = {}
    spans = [(0, rows - 1, 0, columns)]
    while spans:
        middles = {(low + high) // 2: (left, right) for low, high, left, right in spans}
        first |= _halved(middles, ask)
        spans = [
            part
            for low, high, left, right in spans
            for middle in ((low + high) // 2,)
            for part in ((low, middle - 1, first[middle], right), (middle + 1, high, left, first[middle]))
            if part[0] <= part[1]
        ]
    return [first[row] if first[row] < columns else None for row in range(rows)]


def settled(place: Place, ask: Ask) -> tuple[Place, bool]:
    """The place, or one from which no step to less is good enough either; and whether it stayed where it was."""
    start = place
    while True:
        row, column = place
        less = [(r, c) for r, c in ((row - 1, column), (row, column - 1)) if r >= 0 and c >= 0]
        good = [one for one, holds in zip(less, ask(less), strict=True) if holds]
        if not good:
            return place, place == start
        place = good[0]


def reached(run: Record) -> float:
    """Hit tokens as a share of what a cache that never forgets would hit; 1 where that is nothing."""
    ideal = run["ideal_hit_tokens"]
    return float((run["device_hit_tokens"] + run["store_hit_tokens"]) / ideal) if ideal else 1.0


def steps(name: str, text: str, finer: int = 1) -> tuple[float, ...]:
    """`4-512` as the powers of two from 4 to 512, `finer` steps for each; `64` as itself."""
    parts = text.split("-")
    try:
        low, high = float(parts[0]), float(parts[-1])
    except ValueError:
        low = high = 0.0
    if not (len(parts) <= 2 and 0 < low <= high < float("inf")):
        raise OptionError(f"{name} {text}: expected a size such as 64, or a range such as 4-512, above zero")
    if low == high:
        return (low,)
    first, last = ceil(log2(low) * finer - 1e-9), floor(log2(high) * finer + 1e-9)
    if not 0 <= last - first < STEPS_MAX:
        raise OptionError(f"{name} {text}: expected a range with 1 to {STEPS_MAX} steps, found {last - first + 1}")
    return tuple(float(f"{2 ** (step / finer):.4g}") for step in range(first, last + 1))


def _halved(spans: Mapping[int, tuple[int, int]], ask: Ask) -> dict[int, int]:
    """The first true column of each row, which lies in its span; all rows are halved together."""
    open_spans = dict(spans)
    found: dict[int, int] = {}
    while open_spans:
        found |= {row: left for row, (left, right) in open_spans.items() if left == right}
        open_spans = {row: span for row, span in open_spans.items() if row not in found}
        places = [(row, (left + right) // 2) for row, (left, right) in open_spans.items()]
        for (row, middle), holds in zip(places, ask(places) if places else [], strict=True):
            left, right = open_spans[row]
            open_spans[row] = (left, middle) if holds else (middle + 1, right)
    return found


def _balanced(grid: Grid, stairs: Sequence[int | None]) -> Place:
    """Of the pairs that will do, the one with the least sum of both sizes, each in units of the least that does."""
    pairs = [(row, column) for row, column in enumerate(stairs) if column is not None]
    memory = min(grid.host_gb[row] for row, _ in pairs)
    speed = min(grid.store_gbps[column] for _, column in pairs)
    return min(pairs, key=lambda pair: grid.host_gb[pair[0]] / memory + grid.store_gbps[pair[1]] / speed)
