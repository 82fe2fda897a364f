"""The bars that the tree is held to, and the sums that compare a run with them.

Owns limits and ratios. A ratio is taken twice, of medians and of minima, and the bar holds if either does: on a shared
machine one of the two is always someone else's noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[dict[str, Any]]

# (op, ours, peer, length, limit): ours ÷ peer at page 64.
AGAINST = (
    ("cycle", "full", "sglang_rust", 8_192, 1 / 5),
    ("cycle", "full", "sglang_rust", 32_768, 1 / 8),
    ("cycle", "full", "sglang_rust", 131_072, 1 / 12),
    ("cycle", "three", "sglang_rust_swa", 8_192, 1 / 4),
    ("cycle", "three", "sglang_rust_swa", 32_768, 1 / 6),
    ("cycle", "three", "sglang_rust_swa", 131_072, 1 / 12),
    ("cycle", "full", "sglang_python", 8_192, 1 / 25),
    ("cycle", "full", "sglang_python", 32_768, 1 / 60),
    ("cycle", "full", "sglang_python", 131_072, 1 / 120),
    ("match_hit", "full", "sglang_rust", 8_192, 1 / 8),
    ("match_hit", "full", "sglang_rust", 131_072, 1 / 50),
    ("match_hit", "three", "sglang_rust_swa", 8_192, 1 / 5),
    ("match_hit", "three", "sglang_rust_swa", 131_072, 1 / 30),
    ("lock", "full", "sglang_rust", 8_192, 1 / 1.5),
    ("lock", "full", "sglang_rust", 131_072, 1 / 1.5),
)  # fmt: skip
SMALL_AGAINST = (
    ("cycle", "full", "sglang_rust", 8_192, 1 / 2),
    ("cycle", "full", "sglang_rust", 131_072, 1 / 4),
)  # fmt: skip
"""The same below 64 tokens a page."""

GROWTH = (("match_hit", 2.0), ("insert_turn", 2.0), ("cycle", 3.0))
"""(op, limit): 131,072 ÷ 8,192 tokens."""

EVICT_PAGE_US = 10.0
EVICT_4096_US = 250.0
EVICT_GROWTH = 1.5
WORST_EVICTION_US = 1_000.0
LOCK_WARM_US = 2.0
BYTES_PER_NODE = 700.0
KEYS_AND_MATCH_US = 5_000.0
FIRST_CONTACT = 1.5
BLOCK = 64


@dataclass(frozen=True, slots=True)
class Bar:
    """One comparison. `by_min` equals `by_median` where there is one figure only."""

    what: str
    page: int
    turns: int
    by_median: float
    by_min: float
    limit: float
    holds: bool


def bar(what: str, cell: tuple[int, int], values: tuple[float, float], limit: float) -> Bar:
    """Compare two figures of the same thing with a limit."""
    return Bar(what, *cell, *values, limit, min(values) <= limit)


class Table:
    """The rows of one cell, by engine, operation and length."""

    def __init__(self, rows: Rows, cell: tuple[int, int]) -> None:
        mine = [row for row in rows if (row["page"], row["turns"]) == cell]
        self.cell = cell
        self.rows = {(row["engine"], row["op"], row["length"]): row for row in mine}

    def value(self, engine: str, op: str, length: int) -> tuple[float, float] | None:
        """Median and minimum, if the run has them."""
        row = self.rows.get((engine, op, length))
        return None if row is None else (row["median_us"], row["min_us"])

    def ratio(self, ours: tuple[str, str, int], theirs: tuple[str, str, int]) -> tuple[float, float] | None:
        """Medians over medians and minima over minima."""
        top, bottom = self.value(*ours), self.value(*theirs)
        return None if top is None or bottom is None else (top[0] / bottom[0], top[1] / bottom[1])

    def against(self) -> Iterator[Bar]:
        """Ours over the peers'."""
        for op, ours, peer, length, limit in AGAINST if self.cell[0] >= BLOCK else SMALL_AGAINST:
            found = self.ratio((ours, op, length), (peer, op, length))
            if found:
                yield bar(f"{op} {length}: {ours} / {peer}", self.cell, found, limit)

    def alone(self) -> Iterator[Bar]:
        """What holds without a peer."""
        for engine in ("full", "three"):
            for op, limit in GROWTH:
                found = self.ratio((engine, op, 131_072), (engine, op, 8_192))
                if found:
                    yield bar(f"{op} growth 8k to 128k: {engine}", self.cell, found, limit)
            for op, limit in (("evict_page", EVICT_PAGE_US), ("evict_4096", EVICT_4096_US)):
                cost = self.value(engine, op, 0)
                if cost and self.cell[0] >= BLOCK:
                    yield bar(f"{op} us: {engine}", self.cell, cost, limit)
            yield from self.contact(engine)
        for length in (8_192, 131_072):
            warm = self.value("full", "lock_warm", length)
            if warm:
                yield bar(f"lock and unlock under a held parent {length} us: full", self.cell, warm, LOCK_WARM_US)

    def contact(self, engine: str) -> Iterator[Bar]:
        """Keys and match of a prompt never seen."""
        for length in (8_192, 32_768, 131_072):
            found = self.ratio((engine, "first_contact", length), (engine, "bare_hash", length))
            if found:
                yield bar(f"first contact {length} / bare hash loop: {engine}", self.cell, found, FIRST_CONTACT)
        cost = self.value(engine, "first_contact", 131_072)
        if cost:
            yield bar(f"keys and match of 128k tokens us: {engine}", self.cell, cost, KEYS_AND_MATCH_US)


def size_bars(sizes: Rows) -> Iterator[Bar]:
    """Bytes of a node, and the dearest eviction."""
    for size in sizes:
        cell, engine = (size["page"], size["turns"]), size["engine"]
        if cell[0] >= BLOCK:
            each = size["bytes_per_node"]
            yield bar(f"bytes per node: {engine}", cell, (each, each), BYTES_PER_NODE)
        worst = size["worst_eviction_cpu_us"]
        yield bar(f"worst single eviction CPU us: {engine}", cell, (worst, worst), WORST_EVICTION_US)


def growth_bars(rows: Rows) -> Iterator[Bar]:
    """How one eviction grows from ten to a hundred thousand turns."""
    for page in sorted({row["page"] for row in rows}):
        small, large = Table(rows, (page, 10_000)), Table(rows, (page, 100_000))
        for engine in ("full", "three"):
            top, bottom = large.value(engine, "evict_page", 0), small.value(engine, "evict_page", 0)
            if top and bottom:
                found = (top[0] / bottom[0], top[1] / bottom[1])
                yield bar(f"evict_page growth 10k to 100k turns: {engine}", (page, 100_000), found, EVICT_GROWTH)


def bars(rows: Rows, sizes: Rows) -> list[Bar]:
    """Every bar that the run has the figures for."""
    found: list[Bar] = []
    for cell in dict.fromkeys((row["page"], row["turns"]) for row in rows):
        table = Table(rows, cell)
        found += [*table.against(), *table.alone()]
    return [*found, *size_bars(sizes), *growth_bars(rows)]
