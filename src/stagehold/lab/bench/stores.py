"""What a store delivers: put, get and lookup rates, beside a memory copy and plain files in the same run.

Owns the measurement. It writes pages under names that nobody else has and leaves them there, as any user
would; give it a store of its own. Rates are of wall time: on a busy machine look at the ratios.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np

from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Buffer, Progress, Store

SIZES = (64 << 10, 1 << 20, 4 << 20)
BATCHES = (1, 16, 64)
BYTES_PER_ROW = 64 << 20
"""Bytes moved for one figure: some seconds for a slow store, and several batches of 64 small pages."""
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class _Runner:
    """Runs one operation after another on a store."""

    store: Store
    ticket: int = 0

    def __call__(self, call: str, names: Sequence[bytes], *buffers: Sequence[Buffer]) -> Progress:
        """Run an operation to its end. Raises RuntimeError where a key was not good or the end never came."""
        self.ticket += 1
        getattr(self.store, call)(self.ticket, names, *buffers, self.ticket)
        wait, give_up_at = getattr(self.store, "wait", sleep), perf_counter() + PATIENCE_SECONDS
        tick = self.ticket
        while perf_counter() < give_up_at:
            tick += 1
            for progress in self.store.poll(tick):
                if progress.done and progress.good == len(names):
                    return progress
                if progress.done:
                    raise RuntimeError(f"{call}: {progress.verdicts[progress.good].name} for page {progress.good}")
            wait(0.001)
        raise RuntimeError(f"{call}: no end after {PATIENCE_SECONDS} s")


def bench_store(
    url: str,
    *,
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    bytes_per_row: int = BYTES_PER_ROW,
) -> dict[str, Any]:
    """Measure the store at `url`. Returns `url`, `limits` (a row for each size) and `rows` (size and batch).

    Rates in GB/s, lookups in thousands a second. `put_of_files` and `get_of_memory` are the shares of the
    limits.
    """
    limits, rows = [], []
    for size in sizes:
        limit = {"bytes": size, "memory": _memory_rate(size), "files": _file_rate(size, bytes_per_row)}
        limits.append(limit)
        store = open_store(url, size)
        try:
            for batch in batches:
                row = _rates(_Runner(store), size, batch, max(1, bytes_per_row // (size * batch)))
                shares = {"put_of_files": row["put"] / limit["files"], "get_of_memory": row["get"] / limit["memory"]}
                rows.append({"bytes": size, "batch": batch, **row, **shares})
        finally:
            store.close()
    return {"url": url, "limits": limits, "rows": rows}


def _rates(run: _Runner, size: int, batch: int, rounds: int) -> dict[str, float]:
    prefix = secrets.token_bytes(16)
    names = [prefix + index.to_bytes(8) for index in range(batch * rounds)]
    bodies, outs = _pages(size, batch), _pages(size, batch)
    groups = [names[start : start + batch] for start in range(0, len(names), batch)]
    put = _seconds(lambda: [run("put", group, bodies) for group in groups])
    get = _seconds(lambda: [run("get_into", group, outs) for group in groups])
    if outs != bodies:
        raise RuntimeError("get: a page came back with other bytes")
    exists = _seconds(lambda: [run("exists", group) for group in groups])
    moved = size * len(names) / 1e9
    return {"put": moved / put, "get": moved / get, "exists_k": len(names) / exists / 1e3}


def _seconds(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return perf_counter() - started


def _pages(size: int, count: int) -> list[Buffer]:
    one = os.urandom(size)
    return [memoryview(bytearray(one)) for _ in range(count)]


def _memory_rate(size: int) -> float:
    """Return GB/s of copying pages that do not fit into the processor's caches."""
    count = max(2, BYTES_PER_ROW // size)
    source = np.ones((count, size), dtype=np.uint8)
    target = np.zeros_like(source)

    def copy() -> None:
        for index in range(count):
            np.copyto(target[index], source[index])

    return count * size / 1e9 / min(_seconds(copy) for _ in range(3))


def _file_rate(size: int, total: int) -> float:
    """Return GB/s of writing pages to new files, without rename, checksum or sync."""
    count = max(1, total // size)
    page = os.urandom(size)
    with tempfile.TemporaryDirectory(prefix="stagehold-bench-") as folder:
        paths = [Path(folder, str(index)) for index in range(count)]

        def write() -> None:
            for path in paths:
                path.write_bytes(page)

        return count * size / 1e9 / _seconds(write)


def ratios(figures: dict[str, Any]) -> Iterator[str]:
    """Yield one line for each row, for people."""
    for row in figures["rows"]:
        yield (
            f"{row['bytes'] >> 10} KiB x {row['batch']}: put {row['put']:.2f} GB/s ({row['put_of_files']:.2f} of "
            f"plain files), get {row['get']:.2f} GB/s ({row['get_of_memory']:.2f} of a memory copy), "
            f"exists {row['exists_k']:.0f} k/s"
        )
