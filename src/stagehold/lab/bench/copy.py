"""What moving pages between device pool and staging costs on the CPU, beside a plain copy of as many bytes.

Owns the measurement. Times are processor time of this one thread, the least of rounds that take every way in turn,
so that a busy machine hits all alike. Pages and slots are scattered: no two of them lie side by side at both ends.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import thread_time_ns
from typing import Any

import numpy as np

from stagehold.kernels.copies import DeviceBytes, StagingBytes, gather, scatter

PAGE_BYTES = 1 << 20
PARTS = 32
PAGES = 64
ROUNDS = 16
SPREAD = 3
"""Pages of the two pools for each page that is copied."""


class CopyFailed(RuntimeError):
    """A page came back with other bytes: there is no rate to tell."""


def bench_copy(
    page_bytes: int = PAGE_BYTES, parts: int = PARTS, *, pages: int = PAGES, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Gather and scatter of `pages` pages, in GB/s and as a share of a plain copy in the same rounds.

    Two rows. `like`: the pool keeps a page in one piece, as staging does. `across`: it keeps it in `parts` pieces,
    layer-first. Raises ValueError where `parts` is no divisor of `page_bytes`, CopyFailed where bytes come back wrong.
    """
    if page_bytes % parts:
        raise ValueError(f"{parts} parts in a page of {page_bytes} bytes: expected a divisor")
    rows = [_row(layout, page_bytes, each, pages, rounds) for layout, each in (("like", 1), ("across", parts))]
    return {"page_bytes": page_bytes, "pages": pages, "rounds": rounds, "rows": rows}


def _row(layout: str, page_bytes: int, parts: int, pages: int, rounds: int) -> dict[str, Any]:
    least = _least(_ways(page_bytes, parts, pages), rounds)
    moved = page_bytes * pages
    rates = {name: moved / nanoseconds for name, nanoseconds in least.items()}
    shares = {f"{name}_of_copy": least["copy"] / least[name] for name in ("gather", "scatter")}
    return {"layout": layout, "parts": parts, **rates, **shares}


def _ways(page_bytes: int, parts: int, pages: int) -> dict[str, Callable[[], None]]:
    """The plain copy and the two moves, each over its own pages again and again."""
    dice = np.random.default_rng(0)
    slots, places = (dice.permutation(SPREAD * pages)[:pages].tolist() for _ in range(2))
    device = DeviceBytes(parts, page_bytes // parts, SPREAD * pages)
    staging = StagingBytes(parts, page_bytes // parts, SPREAD * pages)
    # Every page of memory is there before anything is measured, and the chosen ones have bytes to be known by.
    device.array()[:], staging.array()[:] = 1, 2
    source = dice.integers(0, 256, (pages, parts, page_bytes // parts), dtype=np.uint8)
    target = np.ones_like(source)
    staging.array()[places] = source
    scatter(staging, places, device, slots)
    staging.array()[places] = 3
    gather(device, slots, staging, places)
    if not np.array_equal(staging.array()[places], source):
        raise CopyFailed(f"pages of {parts} parts did not come back from the pool as they were")
    return {
        "copy": lambda: np.copyto(target, source),
        "gather": lambda: gather(device, slots, staging, places),
        "scatter": lambda: scatter(staging, places, device, slots),
    }


def _least(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, int]:
    """The shortest time of each way in nanoseconds; the first round warms up and is not counted."""
    least: dict[str, int] = {}
    gc.collect()
    gc.disable()
    try:
        for round_ in range(rounds + 1):
            for name, way in ways.items():
                began = thread_time_ns()
                way()
                took = thread_time_ns() - began
                if round_:
                    least[name] = max(1, min(took, least.get(name, took)))
    finally:
        gc.enable()
    return least


def ratios(figures: dict[str, Any]) -> Iterator[str]:
    """Yield one line for each row, for people."""
    for row in figures["rows"]:
        yield (
            f"{row['layout']} layouts, {row['parts']} parts: gather {row['gather']:.2f} GB/s "
            f"({row['gather_of_copy']:.2f} of a plain copy), scatter {row['scatter']:.2f} GB/s "
            f"({row['scatter_of_copy']:.2f}); plain copy {row['copy']:.2f} GB/s"
        )
