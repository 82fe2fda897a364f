"""Page bytes on the device and in staging, and moving them between the two.

The device keeps a page in pieces, one for each part (a layer's K or V), as attention wants it: [parts, slots,
bytes]. Staging keeps a page in one piece, as a store wants it: [pages, parts x bytes]. The change of layout
belongs to this copy. Nothing here knows which slot or page is whose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]


class DeviceBytes:
    """The bytes of a device pool: one uint8 tensor of shape [parts, n_slots, page_part_bytes], zeroed."""

    def __init__(self, parts: int, page_part_bytes: int, n_slots: int, device: str = "cpu") -> None:
        _positive(parts=parts, page_part_bytes=page_part_bytes, n_slots=n_slots)
        self.parts = parts
        self.page_part_bytes = page_part_bytes
        self.n_slots = n_slots
        self.tensor = torch.zeros((parts, n_slots, page_part_bytes), dtype=torch.uint8, device=device)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts."""
        return self.parts * self.page_part_bytes

    @property
    def on_cpu(self) -> bool:
        """Whether the pool lies in host memory."""
        return self.tensor.device.type == "cpu"

    def array(self) -> Bytes:
        """Return the pool as a numpy view of the same shape; only for a pool on the CPU."""
        view: Bytes = self.tensor.numpy()
        return view


class StagingBytes:
    """The bytes of a staging pool: one uint8 tensor of shape [n_pages, parts x page_part_bytes], zeroed.

    `pinned` locks the memory for asynchronous copies; it needs CUDA.
    """

    def __init__(self, parts: int, page_part_bytes: int, n_pages: int, *, pinned: bool = False) -> None:
        _positive(parts=parts, page_part_bytes=page_part_bytes, n_pages=n_pages)
        self.parts = parts
        self.page_part_bytes = page_part_bytes
        self.n_pages = n_pages
        shape = (n_pages, parts * page_part_bytes)
        self.tensor = torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts."""
        return self.parts * self.page_part_bytes

    def page(self, index: int) -> memoryview:
        """Return page `index` as the writable buffer that stores take: contiguous, format 'B'."""
        view: Bytes = self.tensor.numpy()
        return memoryview(view[index])

    def array(self) -> Bytes:
        """Return the pool as a numpy view of shape [n_pages, parts, page_part_bytes]."""
        view: Bytes = self.tensor.numpy().reshape(self.n_pages, self.parts, self.page_part_bytes)
        return view


def gather(device: DeviceBytes, slots: Sequence[int], staging: StagingBytes, pages: Sequence[int]) -> None:
    """Copy device slot `slots[i]` into staging page `pages[i]`, for all i.

    On CUDA this only queues the copy on the current stream. Raises ValueError where shapes or lengths differ.
    """
    _match(device, slots, staging, pages)
    if not slots:
        return
    if device.on_cpu:
        source, target = device.array(), staging.array()
        for slot, page in zip(slots, pages, strict=True):
            # One strided assignment a page: of the plain forms measured, the fastest at every part size.
            target[page] = source[:, slot]
        return
    picked = device.tensor.index_select(1, _indices(slots, device)).transpose(0, 1)
    packed = picked.reshape(len(slots), device.page_bytes)
    for first, start, stop in _runs(pages):
        staging.tensor[start:stop].copy_(packed[first : first + stop - start], non_blocking=True)


def scatter(staging: StagingBytes, pages: Sequence[int], device: DeviceBytes, slots: Sequence[int]) -> None:
    """Copy staging page `pages[i]` into device slot `slots[i]`, for all i; the slots must differ.

    On CUDA this only queues the copy on the current stream. Raises ValueError where shapes or lengths differ.
    """
    _match(device, slots, staging, pages)
    if not slots:
        return
    if device.on_cpu:
        source, target = staging.array(), device.array()
        for slot, page in zip(slots, pages, strict=True):
            target[:, slot] = source[page]
        return
    packed = torch.empty((len(slots), device.page_bytes), dtype=torch.uint8, device=device.tensor.device)
    for first, start, stop in _runs(pages):
        packed[first : first + stop - start].copy_(staging.tensor[start:stop], non_blocking=True)
    parts = packed.view(len(slots), device.parts, device.page_part_bytes).transpose(0, 1)
    device.tensor.index_copy_(1, _indices(slots, device), parts)


def check_round_trip(device: DeviceBytes, staging: StagingBytes) -> None:
    """Send a pattern through the first and the last slot and page and back. For start-up: leaves them zeroed.

    Raises RuntimeError where a byte came back changed.
    """
    size = staging.page_bytes
    pattern = (np.arange(size, dtype=np.int64) * 31 % 251 + 1).astype(np.uint8)
    for slot, page in ((0, 0), (device.n_slots - 1, staging.n_pages - 1)):
        staging.page(page)[:] = pattern.tobytes()
        scatter(staging, [page], device, [slot])
        _settle(device)
        staging.page(page)[:] = bytes(size)
        gather(device, [slot], staging, [page])
        _settle(device)
        if staging.page(page) != pattern.tobytes():
            raise RuntimeError(f"slot {slot} of the device pool does not give back the bytes put into it")
        staging.page(page)[:] = bytes(size)
        scatter(staging, [page], device, [slot])
    _settle(device)


def _settle(device: DeviceBytes) -> None:
    if not device.on_cpu:
        torch.cuda.synchronize(device.tensor.device)


def _indices(slots: Sequence[int], device: DeviceBytes) -> torch.Tensor:
    return torch.tensor(slots, dtype=torch.int64).to(device.tensor.device, non_blocking=True)


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (position, first page, last page + 1) of each run of consecutive pages: one copy each."""
    first = 0
    for position in range(1, len(pages) + 1):
        if position == len(pages) or pages[position] != pages[position - 1] + 1:
            yield first, pages[first], pages[position - 1] + 1
            first = position


def _match(device: DeviceBytes, slots: Sequence[int], staging: StagingBytes, pages: Sequence[int]) -> None:
    ours, theirs = (device.parts, device.page_part_bytes), (staging.parts, staging.page_part_bytes)
    if ours != theirs:
        raise ValueError(f"device pages are {ours} (parts, bytes of a part), staging pages {theirs}")
    if len(slots) != len(pages):
        raise ValueError(f"{len(slots)} slots with {len(pages)} pages: expected one each")
    for index, limit, what in ((slots, device.n_slots, "slot"), (pages, staging.n_pages, "page")):
        if index and not 0 <= min(index) <= max(index) < limit:
            raise ValueError(f"{what} out of range: expected 0 to {limit - 1}, got {min(index)} to {max(index)}")


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: expected at least 1")
