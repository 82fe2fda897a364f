"""What a tick's exchange costs beside one bare all-reduce of the same size, and what packing and reading facts adds.

Owns the measurement: wall time in processes that do both in turns, so that a busy machine hits both alike; medians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from stagehold import EngineConfig, MeetingPlace, TorchGroup
from stagehold.lifecycle.facts import TAIL, Capacity, pack, unpack

EXCHANGES = 2_000
WARM_UP = 50
SIZES = (2, 4)
TIMEOUT_SECONDS = 60.0


def bench_ranks(exchanges: int = EXCHANGES, sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Rows of `ranks`, `exchange_us`, `bare_allreduce_us`, `ratio` and `pack_us`: medians of rank 0, for each size.

    `exchange_us` is `TorchGroup.exchange`, `pack_us` packing the facts before it and reading the agreement after it.
    """
    rows = [{"ranks": size, **measured(size, exchanges)} for size in sizes]
    return {"facts": len(operations()) + TAIL, "exchanges": exchanges, "rows": rows}


def operations() -> Any:
    """The fact table of an engine at its default window, with something in every place."""
    window = EngineConfig(device_pages=8, staging_pages=8, largest_request_tokens=64).operation_window
    return np.arange(3 * window, dtype=np.int64)


def measured(size: int, exchanges: int) -> dict[str, float]:
    """The medians in microseconds, and the ratio of the first two."""
    context = get_context("spawn")
    place = MeetingPlace()
    ours, theirs = context.Pipe(duplex=False)
    tasks = [_Task(rank, size, place.port, exchanges) for rank in range(size)]
    processes = [context.Process(target=_measure, args=(task, theirs), daemon=True) for task in tasks]
    try:
        for process in processes:
            process.start()
        theirs.close()
        exchange_us, bare_us, pack_us = ours.recv()
    finally:
        for process in processes:
            process.join(TIMEOUT_SECONDS)
            if process.is_alive():
                process.terminate()
        ours.close()
    ratio = exchange_us / bare_us
    return {"exchange_us": exchange_us, "bare_allreduce_us": bare_us, "ratio": ratio, "pack_us": pack_us}


@dataclass(frozen=True, slots=True)
class _Task:
    rank: int
    size: int
    port: int
    exchanges: int


def _measure(task: _Task, pipe: Connection) -> None:
    """One rank's part; rank 0 tells what it measured."""
    group = TorchGroup.join("127.0.0.1", task.port, task.rank, task.size, timeout_seconds=TIMEOUT_SECONDS)
    table, digest, left = operations(), bytes(range(16)), Capacity(100, 20, 300)

    told = pack(table, digest, left, mark=12345)

    def exchange() -> None:
        group.exchange(told)

    def packing() -> None:
        unpack(pack(table, digest, left, mark=12345))

    def bare() -> None:
        group._links.allreduce([group._buffer], group._least).wait()  # noqa: SLF001 - the same links and bytes

    for _ in range(WARM_UP):
        exchange()
        bare()
    calls: list[tuple[str, Callable[[], None]]] = [("exchange", exchange), ("bare", bare), ("pack", packing)]
    spent: dict[str, list[int]] = {name: [] for name, _ in calls}
    for _ in range(task.exchanges):
        for name, call in calls:
            begin = perf_counter_ns()
            call()
            spent[name].append(perf_counter_ns() - begin)
        calls.append(calls.pop(0))
    group.close()
    if task.rank == 0:
        pipe.send([median(spent[name]) / 1_000 for name in ("exchange", "bare", "pack")])
