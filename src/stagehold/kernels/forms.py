"""The forms in which a device other than the CPU takes and gives pages, and the choice between them.

A form works on tensors: `pool` is uint8 [parts, slots, bytes] on the device, `pages` uint8 [pages, parts, bytes] in
host memory, both with the bytes of a part side by side. It queues its work on the current stream and waits for
nothing. None of them needs CUDA to be right, so all are tested on CPU tensors.
"""

from __future__ import annotations

import importlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import torch

from stagehold.kernels.runs import runs

LOG = logging.getLogger("stagehold")

LONG_PART_BYTES = 256 << 10
"""From here on one asynchronous copy for each part is no dearer than the transfer: the copy engines do it alone."""

BUFFER_BYTES = 64 << 20
"""The most that a packed copy takes of the device, whose memory belongs to model and pool."""


@dataclass(frozen=True, slots=True)
class Form:
    """Two movers: `gather(pool, slots, pages, indices)` to the host, `scatter(... , layers)` to the device.

    `scatter` is a generator: when it has yielded i times, all copies to the parts of `layers[:i]` are queued.
    """

    name: str
    gather: Callable[[torch.Tensor, Sequence[int], torch.Tensor, Sequence[int]], None]
    scatter: Callable[
        [torch.Tensor, Sequence[int], torch.Tensor, Sequence[int], Sequence[range]], Iterator[None]
    ]  # fmt: skip


class Obstacle(Enum):
    """Why the Triton kernel is not used."""

    MISSING = "it is not installed"
    BROKEN = "its import failed"
    UNFIT = "its first use failed"


def form_for(pool: torch.Tensor, *, pinned: bool) -> Form:
    """The form for this pool: long parts one by one, short ones by Triton where host memory is `pinned`."""
    if pool.shape[2] >= LONG_PART_BYTES:
        return LONG
    paged = triton_form(pool.device) if pinned else None
    return paged or PACKED


@cache
def triton_form(device: torch.device) -> Form | None:
    """The Triton kernel as a form, once it has moved a few pages rightly on `device`; None, and said once, if not."""
    found = _look_for_triton(device)
    if isinstance(found, Form):
        return found
    obstacle, error = found
    LOG.warning("copies on %s run without triton: %s: %s: %s", device, obstacle.value, type(error).__name__, error)
    return None


def _look_for_triton(device: torch.device) -> Form | tuple[Obstacle, Exception]:
    try:
        paged = importlib.import_module("stagehold.kernels.paged")
    except Exception as error:  # noqa: BLE001 - whatever a broken build raises, there is another form
        missing = isinstance(error, ModuleNotFoundError) and error.name == "triton"
        return Obstacle.MISSING if missing else Obstacle.BROKEN, error
    form = Form("triton", paged.gather, paged.scatter)
    try:
        _prove(form, device)
    except Exception as error:  # noqa: BLE001
        return Obstacle.UNFIT, error
    return form


def _prove(form: Form, device: torch.device) -> None:
    """Send seeded pages to the device and back. Raises RuntimeError where one comes back changed."""
    pinned = device.type != "cpu"
    parts, size = 4, 48
    sent = torch.arange(3 * parts * size, dtype=torch.int64).remainder(251).to(torch.uint8).view(3, parts, size)
    pages = torch.zeros((5, parts, size), dtype=torch.uint8, pin_memory=pinned)
    pool = torch.zeros((parts, 7, size), dtype=torch.uint8, device=device)
    pages[[4, 0, 1]] = sent
    for _ in form.scatter(pool, (6, 2, 3), pages, (4, 0, 1), (range(1), range(1, parts))):
        pass
    form.gather(pool, (2, 3, 6), pages, (2, 3, 4))
    if pinned:
        torch.cuda.synchronize(device)
    if not torch.equal(pages[[4, 2, 3]], sent):
        raise RuntimeError("pages came back with other bytes")


def _gather_long(pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int]) -> None:
    for slot, index in zip(slots, indices, strict=True):
        for part in range(pool.shape[0]):
            pages[index, part].copy_(pool[part, slot], non_blocking=True)


def _scatter_long(
    pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int], layers: Sequence[range]
) -> Iterator[None]:
    for layer in layers:
        for slot, index in zip(slots, indices, strict=True):
            for part in layer:
                pool[part, slot].copy_(pages[index, part], non_blocking=True)
        yield


def _gather_packed(pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int]) -> None:
    """Through a page-first buffer on the device, so that each run of pages is one transfer."""
    for some in _buffers(pages, indices):
        packed = pool.index_select(1, on_device(slots[some], pool)).transpose(0, 1).contiguous()
        for at, page, count in runs(range(len(packed)), indices[some]):
            pages[page : page + count].copy_(packed[at : at + count], non_blocking=True)


def _scatter_packed(
    pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int], layers: Sequence[range]
) -> Iterator[None]:
    """The way back; of more pages than a buffer holds, only the last are in steps."""
    *bufferfuls, last = _buffers(pages, indices)
    for some in bufferfuls:
        deque(_scatter_buffer(pool, slots[some], pages, indices[some], layers), maxlen=0)
    yield from _scatter_buffer(pool, slots[last], pages, indices[last], layers)


def _scatter_buffer(
    pool: torch.Tensor, slots: Sequence[int], pages: torch.Tensor, indices: Sequence[int], layers: Sequence[range]
) -> Iterator[None]:
    packed = torch.empty((len(indices), *pages.shape[1:]), dtype=torch.uint8, device=pool.device)
    for at, page, count in runs(range(len(indices)), indices):
        packed[at : at + count].copy_(pages[page : page + count], non_blocking=True)
    index = on_device(slots, pool)
    for layer in layers:
        here = slice(layer.start, layer.stop)
        pool[here].index_copy_(1, index, packed[:, here].transpose(0, 1))
        yield


def _buffers(pages: torch.Tensor, indices: Sequence[int]) -> list[slice]:
    """The copy cut into as many pages as a buffer holds, at least one."""
    step = max(1, BUFFER_BYTES // pages[0].nbytes)
    return [slice(first, first + step) for first in range(0, len(indices), step)]


def on_device(indices: Sequence[int], pool: torch.Tensor) -> torch.Tensor:
    """Indices as int64 beside the pool. From pinned memory, or the transfer could wait for all that is queued."""
    host = torch.tensor(indices, dtype=torch.int64, pin_memory=pool.is_cuda)
    return host.to(pool.device, non_blocking=True)


LONG = Form("long", _gather_long, _scatter_long)
PACKED = Form("packed", _gather_packed, _scatter_packed)
