"""What a store delivers: put, get and lookup rates, beside a memory copy and plain files in the same run.

Owns the measurement. It writes pages under names that nobody else has and leaves them there, as any user
would; give it a store of its own. Rates are of wall time: on a busy machine look at the ratios.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from stagehold.cache.stores.open import open_store, parse_url
from stagehold.cache.stores.protocol import Buffer, Progress, Store, WaitableStore, assign_tenant

SIZES = (64 << 10, 1 << 20, 4 << 20)
BATCHES = (1, 16, 64)
BYTES_PER_ROW = 32 << 20
"""Bytes moved for one figure in one round, or one batch where that is more."""
COPIED_BYTES = 128 << 20
"""Source of the memory copy, gone through from round to round: no page of it is still in the processor's caches."""
ROUNDS = 5
PATIENCE_SECONDS = 120.0
TENANT = b"bench".ljust(32)
"""Whose pages they are to a store that keeps tenants apart: what belongs to no tenant has hardly any room there."""


class StoreFailed(ValueError):
    """The store at the URL given did not do what it was asked."""


@dataclass(slots=True)
class _Runner:
    """Runs one operation after another on a store, which is named `url`."""

    store: Store
    url: str
    ticket: int = 0

    def __call__(self, call: str, names: Sequence[bytes], *buffers: Sequence[Buffer]) -> Progress:
        """Run an operation to its end. Raises StoreFailed where a key was not good or the end never came."""
        self.ticket += 1
        assign_tenant(self.store, self.ticket, TENANT)
        getattr(self.store, call)(self.ticket, names, *buffers, self.ticket)
        give_up_at = perf_counter() + PATIENCE_SECONDS
        tick = self.ticket
        while perf_counter() < give_up_at:
            tick += 1
            for progress in self.store.poll(tick):
                if progress.done and progress.good == len(names):
                    return progress
                if progress.done:
                    said = list(getattr(self.store, "errors", ()))[-1:]
                    verdict = f"{progress.verdicts[progress.good].name} for page {progress.good}"
                    raise StoreFailed(": ".join([self.url, call, verdict, *said]))
            if isinstance(self.store, WaitableStore):
                self.store.wait(PATIENCE_SECONDS)  # a clock that wakes us meanwhile would cost the workers time
            else:
                sleep(0.001)
        raise StoreFailed(f"{self.url}: {call}: no end after {PATIENCE_SECONDS} s")


def bench_store(
    url: str,
    *,
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    bytes_per_row: int = BYTES_PER_ROW,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """Measure the store at `url`. Returns `url` and `rows`, one for each size and batch.

    A row has the rates of memory copy (`memory`), plain new files (`files`), `put` and `get` in GB/s, lookups in
    thousands a second (`exists_k`), and the shares `put_of_files` and `get_of_memory`. Rounds take all of them in
    turn: a rate is the best of its rounds, a share the median of those within a round, whose parts saw the same
    machine.
    """
    rows = []
    for size in sizes:
        one_size, folder = _of_one_size(url, size)
        # The store first: a URL that it refuses leaves no directory behind.
        with closing(open_store(one_size, size)) as store, _Limits(size, folder) as limits:
            for batch in batches:
                run, groups = _Runner(store, url), max(1, bytes_per_row // (size * batch))
                found = [_round(run, limits, batch, groups) for _ in range(rounds)]
                rows.append({"bytes": size, "batch": batch, **_row(found)})
    return {"url": url, "rows": rows}


def _of_one_size(url: str, size: int) -> tuple[str, str | None]:
    """Return the URL for pages of `size` and the folder whose disk plain files are to share, if there is one.

    A directory of page files is for one size of page.
    """
    parse_url(url, size)
    parts = urlsplit(url)
    if parts.scheme != "file" or not parts.path.startswith("/"):
        return url, None
    folder = f"{parts.path.rstrip('/')}/{size}"
    return urlunsplit(parts._replace(path=folder)), str(Path(unquote(folder)).parent)


def _row(rounds: list[dict[str, float]]) -> dict[str, float]:
    best = {figure: max(found[figure] for found in rounds) for figure in rounds[0]}
    shares = {"put_of_files": ("put", "files"), "get_of_memory": ("get", "memory")}
    return best | {name: median(row[a] / row[b] for row in rounds) for name, (a, b) in shares.items()}


def _round(run: _Runner, limits: _Limits, batch: int, groups: int) -> dict[str, float]:
    """Every figure once. Pages of one batch share a body; names are new each time."""
    prefix = secrets.token_bytes(16)
    names = [[prefix + number.to_bytes(8) + index.to_bytes(8) for index in range(batch)] for number in range(groups)]
    bodies, outs = _pages(limits.size, batch), _pages(limits.size, batch)
    count, moved = batch * groups, limits.size * batch * groups / 1e9
    memory = limits.copy_seconds(count)
    files = limits.file_seconds(bodies * groups)
    put = _seconds(lambda: [run("put", group, bodies) for group in names])
    get = _seconds(lambda: [run("get_into", group, outs) for group in names])
    if outs != bodies:
        raise StoreFailed(f"{run.url}: get: a page came back with other bytes")
    exists = _seconds(lambda: [run("exists", group) for group in names])
    rates = {"memory": memory, "files": files, "put": put, "get": get}
    return {name: moved / seconds for name, seconds in rates.items()} | {"exists_k": count / exists / 1e3}


class _Limits:
    """What the machine can do with pages of `size` bytes, measured again in every round.

    Plain files stay until the end: some file systems are slow at making files where others were just removed,
    and the store, which comes after, would pay for it.
    """

    def __init__(self, size: int, folder: str | None) -> None:
        self.size = size
        self._pages = max(2, COPIED_BYTES // size)
        self._source = np.frombuffer(os.urandom(size) * self._pages, dtype=np.uint8).reshape(self._pages, size)
        self._target = np.zeros_like(self._source)
        self._folder = tempfile.TemporaryDirectory(prefix="stagehold-bench-", dir=folder)
        self._files = self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def copy_seconds(self, count: int) -> float:
        """Copy `count` pages, going on where the last call ended."""
        return _seconds(lambda: self._copy(count))

    def _copy(self, count: int) -> None:
        for index in range(self._next, self._next + count):
            np.copyto(self._target[index % self._pages], self._source[index % self._pages])
        self._next += count

    def file_seconds(self, pages: Sequence[Buffer]) -> float:
        """Write the pages that the store is given, each to a new file, without rename, checksum or sync."""
        paths = [Path(self._folder.name, str(self._files + index)) for index in range(len(pages))]
        self._files += len(pages)
        return _seconds(lambda: [path.write_bytes(page) for path, page in zip(paths, pages, strict=True)])


def _seconds(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return perf_counter() - started


def _pages(size: int, count: int) -> list[Buffer]:
    one = os.urandom(size)
    return [memoryview(bytearray(one)) for _ in range(count)]


def ratios(figures: dict[str, Any]) -> Iterator[str]:
    """Yield one line for each row, for people."""
    for row in figures["rows"]:
        yield (
            f"{row['bytes'] >> 10} KiB x {row['batch']}: put {row['put']:.2f} GB/s ({row['put_of_files']:.2f} of "
            f"plain files), get {row['get']:.2f} GB/s ({row['get_of_memory']:.2f} of a memory copy), "
            f"exists {row['exists_k']:.0f} k/s"
        )
