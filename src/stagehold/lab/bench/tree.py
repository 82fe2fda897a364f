"""The tree bench: what each operation costs at each length and size, beside SGLang's caches where there are any.

Owns the run, its rows and its bars. Engines take turns within every operation, each in a process of its own but for
ours, so that a busy machine hits all alike; ratios and minima say more than medians. Times are microseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from stagehold.lab.bench import tree_bars, tree_peer, tree_workload
from stagehold.lab.bench.tree_ours import OurTree

OURS = ("full", "three")
OPS = ("match_hit", "match_half", "insert_turn", "lock", "cycle")
OUR_OPS = (*OPS, "lock_warm", "first_contact", "bare_hash")
SIZE_OPS = ("evict_page", "evict_4096")
ROUNDS = 4
SLOW_CORE_TURNS = 10_000  # beyond this size the Python core takes minutes to fill and shows nothing new
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Cell:
    """What is built once and measured in all operations."""

    page: int
    turns: int
    lengths: tuple[int, ...]
    reps: int


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of one engine; `length` is 0 where it says nothing."""

    engine: str
    op: str
    page: int
    length: int
    turns: int
    median_us: float
    min_us: float


class Engine(Protocol):
    """Something that runs the operations of the bench."""

    def run(self, op: str, job: tree_workload.Job) -> list[int]:
        """Nanoseconds of each repetition."""


class Peer:
    """A foreign cache in the interpreter of its own environment."""

    def __init__(self, python: str, cache: str, cell: Cell) -> None:
        command = [python, str(_HERE / "tree_peer.py"), cache, str(_HERE / "tree_workload.py")]
        # The command is the caller's own interpreter and two files of this package.
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ask(asdict(cell))

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()

    def ask(self, request: dict[str, Any]) -> Any:
        """Send one request and wait for its answer; raises RuntimeError with the last lines of a peer that died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            said = self.process.communicate()[1].splitlines()[-5:]
            raise RuntimeError("the peer ended: " + " | ".join(said))
        return json.loads(answer)

    def run(self, op: str, job: tree_workload.Job) -> list[int]:
        """Nanoseconds of each repetition."""
        times: list[int] = self.ask({"op": op, "job": job})
        return times


def measure(engines: dict[str, Engine], cell: Cell, op: str, length: int) -> list[Row]:
    """One operation on all engines, in turns that change their order."""
    cheap = length <= tree_workload.LENGTHS[1] or op not in OPS
    reps = cell.reps if cheap else max(ROUNDS * 4, cell.reps // 4)
    if op == "evict_4096":
        reps = ROUNDS * 6
    times: dict[str, list[int]] = {name: [] for name in engines}
    for salt in range(ROUNDS):
        for name in list(engines) if salt % 2 else reversed(engines):
            times[name] += engines[name].run(op, tree_workload.Job(length, reps // ROUNDS + 1, salt))
    return [
        Row(name, op, cell.page, length, cell.turns, median(found) / 1e3, min(found) / 1e3)
        for name, found in times.items()
    ]


def run_cell(cell: Cell, peer: str | None) -> tuple[list[Row], dict[str, Any]]:
    """All operations at one page size and one size of the tree, and the sizes of ours."""
    ours = {name: OurTree(name, cell.page, cell.turns, list(cell.lengths), cell.reps) for name in OURS}
    names = [n for n in tree_peer.CACHES if cell.turns <= SLOW_CORE_TURNS or "python" not in n] if peer else []
    peers: dict[str, Peer] = {}
    rows: list[Row] = []
    try:
        for name in names:
            assert peer is not None
            peers[name] = Peer(peer, name, cell)
        both: dict[str, Engine] = {**ours, **peers}
        for length in cell.lengths:
            for op in OUR_OPS:
                rows += measure(both if op in OPS else dict(ours), cell, op, length)
        for op in SIZE_OPS:
            rows += measure(both, cell, op, 0)
    finally:
        for running in peers.values():
            running.close()
    return rows, {name: sizes(tree) for name, tree in ours.items()}


def sizes(ours: OurTree) -> dict[str, float]:
    """Nodes, bytes of each, and the dearest single eviction on the way to an empty tree."""
    nodes, each = ours.nodes_built, ours.bytes_built
    drained = ours.drain()
    return {"nodes": nodes, "bytes_per_node": each, "worst_eviction_cpu_us": max(drained, default=0) / 1e3}


def bench_tree(
    turns: Sequence[int] = (10_000,),
    pages: Sequence[int] = (64,),
    lengths: Sequence[int] = tree_workload.LENGTHS,
    reps: int = 100,
    *,
    peer: str | None = None,
) -> dict[str, Any]:
    """Run the bench; `peer` is an interpreter whose environment has SGLang, or None for ours alone.

    Returns `rows`, `sizes` by cell, and `bars`: each with both ratios, its limit, and whether it holds.
    """
    rows: list[Row] = []
    found: list[dict[str, Any]] = []
    for page in pages:
        for size in turns:
            more, ours = run_cell(Cell(page, size, tuple(lengths), reps), peer)
            rows += more
            found += [{"engine": name, "page": page, "turns": size, **each} for name, each in ours.items()]
    return {
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0]},
        "rows": [asdict(row) for row in rows],
        "sizes": found,
        "bars": [asdict(bar) for bar in tree_bars.bars([asdict(row) for row in rows], found)],
    }
