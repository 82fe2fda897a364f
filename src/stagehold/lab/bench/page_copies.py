"""What moving pages between device pool and staging costs, beside a plain copy of as many bytes the same way.

Owns the measurement. Each figure is the least of rounds that take every way in turn, so that a busy machine hits all
alike: processor time of this one thread where the pool lies on the CPU, and time until the last copy has ended where
it does not. Pages and slots are scattered: hardly two of them lie side by side at both ends.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np

from stagehold.kernels.copies import DeviceBytes, StagingBytes
from stagehold.kernels.device import usable_device
from stagehold.kernels.transfers import Transfers

PAGE_BYTES = 1 << 20
PARTS = 32
PAGES = 64
ROUNDS = 16
SPREAD = 3
"""Pages of the two pools for each page that is copied."""


class CopyFailed(RuntimeError):
    """A page came back with other bytes: there is no rate to tell."""


def bench_copy(
    page_bytes: int = PAGE_BYTES,
    parts: int = PARTS,
    *,
    pages: int = PAGES,
    rounds: int = ROUNDS,
    device: str = "cpu",
) -> dict[str, Any]:
    """Gather and scatter of `pages` pages, in GB/s and as a share of a plain copy in the same rounds.

    Two rows. `like`: the pool keeps a page in one piece, as staging does. `across`: it keeps it in `parts` pieces,
    layer-first. Raises ValueError where `parts` is no divisor of `page_bytes` or `device` no device, RuntimeError
    where it does not work, CopyFailed where bytes come back wrong.
    """
    if page_bytes % parts:
        raise ValueError(f"{parts} parts in a page of {page_bytes} bytes: expected a divisor")
    where = usable_device(device)
    plain = _pools(1, page_bytes * pages, 1, where)
    rows = []
    for layout, each in (("like", 1), ("across", parts)):
        pools = _pools(each, page_bytes // each, SPREAD * pages, where)
        rows.append({"layout": layout, "parts": each, **_figures(plain, pools, pages, rounds)})
    return {"device": where, "page_bytes": page_bytes, "pages": pages, "rounds": rounds, "rows": rows}


def _figures(plain: Transfers, pools: Transfers, pages: int, rounds: int) -> dict[str, float]:
    clock = thread_time_ns if pools.device.on_cpu else perf_counter_ns
    least = _least(_ways(plain, pools, pages), clock, rounds)
    rates = {name: pages * pools.staging.page_bytes / nanoseconds for name, nanoseconds in least.items()}
    out, back = least["copy_out"] / least["gather"], least["copy_in"] / least["scatter"]
    return {**rates, "gather_of_copy": out, "scatter_of_copy": back}


def _pools(parts: int, part_bytes: int, pages: int, where: str) -> Transfers:
    """As many slots as staging pages, with other bytes everywhere: all of the memory is really there."""
    pools = Transfers(
        DeviceBytes(parts, part_bytes, pages, where), StagingBytes(parts, part_bytes, pages, pinned=where != "cpu")
    )
    pools.device.tensor.fill_(1)
    pools.staging.tensor.fill_(2)
    return pools


def _ways(plain: Transfers, pools: Transfers, pages: int) -> dict[str, Callable[[], None]]:
    """The plain copy and ours in both directions, over the same pages again and again."""
    dice = np.random.default_rng(0)
    slots, places = (dice.permutation(SPREAD * pages)[:pages].tolist() for _ in range(2))
    _must_come_back(pools, slots, places)
    return {
        "copy_out": lambda: _whole(plain, plain.save, [0], [0]),
        "gather": lambda: _whole(pools, pools.save, slots, places),
        "copy_in": lambda: _whole(plain, plain.load, [0], [0]),
        "scatter": lambda: _whole(pools, pools.load, places, slots),
    }


def _whole(
    pools: Transfers, send: Callable[[Sequence[int], Sequence[int]], None], ours: list[int], theirs: list[int]
) -> None:
    send(ours, theirs)
    pools.settle()


def _must_come_back(pools: Transfers, slots: list[int], places: list[int]) -> None:
    sent = np.random.default_rng(1).integers(0, 256, (len(places), pools.staging.page_bytes), dtype=np.uint8)
    staging = pools.staging.tensor.numpy()
    staging[places] = sent
    _whole(pools, pools.load, places, slots)
    staging[places] = 3
    _whole(pools, pools.save, slots, places)
    if not np.array_equal(staging[places], sent):
        raise CopyFailed(f"pages of {pools.device.parts} parts did not come back from the pool as they were")


def _least(ways: dict[str, Callable[[], None]], clock: Callable[[], int], rounds: int) -> dict[str, int]:
    """The shortest time of each way in nanoseconds; the first round warms up and is not counted."""
    least: dict[str, int] = {}
    gc.collect()
    gc.disable()
    try:
        for round_ in range(rounds + 1):
            for name, way in ways.items():
                began = clock()
                way()
                took = clock() - began
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
            f"({row['scatter_of_copy']:.2f}); on {figures['device']}"
        )
