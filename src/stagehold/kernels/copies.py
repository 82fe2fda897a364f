"""Page bytes on the device and in staging, and moving them between the two.

The device keeps a page in pieces, one for each part (a layer's K or V), as attention wants it: [parts, slots,
bytes]. Staging keeps a page in one piece, as a store wants it: [pages, parts x bytes]. The change of layout
belongs to this copy. Nothing here knows which slot or page is whose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stagehold.kernels.lanes import CopyLane
from stagehold.kernels.pinned import pin
from stagehold.kernels.runs import runs

if TYPE_CHECKING:
    import torch

    from stagehold.kernels.forms import Form

Bytes = npt.NDArray[np.uint8]


class DeviceBytes:
    """The bytes of a device pool: one uint8 tensor of shape [parts, n_slots, page_part_bytes], zeroed.

    `layer_parts` parts in a row belong to one layer of the model: two where K and V lie apart, one where they do not.
    Copies to the pool under way are in `loads`, copies from it in `saves`.
    """

    def __init__(
        self, parts: int, page_part_bytes: int, n_slots: int, device: str = "cpu", *, layer_parts: int = 2
    ) -> None:
        import torch

        _positive(parts=parts, page_part_bytes=page_part_bytes, n_slots=n_slots, layer_parts=layer_parts)
        self.parts = parts
        self.page_part_bytes = page_part_bytes
        self.n_slots = n_slots
        self.layer_parts = layer_parts
        self.tensor = torch.zeros((parts, n_slots, page_part_bytes), dtype=torch.uint8, device=device)
        self.loads = CopyLane(device)
        self.saves = CopyLane(device)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts."""
        return self.parts * self.page_part_bytes

    @property
    def layers(self) -> list[range]:
        """The parts of each layer, in order."""
        parts = range(self.parts)
        return [parts[first : first + self.layer_parts] for first in range(0, self.parts, self.layer_parts)]

    @property
    def on_cpu(self) -> bool:
        """Whether the pool lies in host memory."""
        return self.tensor.device.type == "cpu"

    def array(self) -> Bytes:
        """Return the pool as a numpy view of the same shape; only for a pool on the CPU."""
        view: Bytes = self.tensor.numpy()
        return view

    def wait_layer(self, layer: int) -> None:
        """Before a forward reads or writes `layer` (0 is the first): its stream, the current one, waits for the loads.

        The caller does not wait, and on the CPU there is nothing to wait for.
        """
        self.loads.wait_step(layer)


class StagingBytes:
    """The bytes of a staging pool: one uint8 tensor of shape [n_pages, parts x page_part_bytes], zeroed.

    `pinned` locks the memory for asynchronous copies; it needs CUDA.
    """

    def __init__(self, parts: int, page_part_bytes: int, n_pages: int, *, pinned: bool = False) -> None:
        import torch

        _positive(parts=parts, page_part_bytes=page_part_bytes, n_pages=n_pages)
        self.parts = parts
        self.page_part_bytes = page_part_bytes
        self.n_pages = n_pages
        self.pinned = pinned
        self.tensor = torch.zeros((n_pages, parts * page_part_bytes), dtype=torch.uint8)
        if pinned:
            pin(self, self.tensor)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts."""
        return self.parts * self.page_part_bytes

    @property
    def paged(self) -> torch.Tensor:
        """The pool as a tensor of shape [n_pages, parts, page_part_bytes]."""
        return self.tensor.view(self.n_pages, self.parts, self.page_part_bytes)

    def page(self, index: int) -> memoryview:
        """Return page `index` as the writable buffer that stores take: contiguous, format 'B'."""
        view: Bytes = self.tensor.numpy()
        return memoryview(view[index])

    def array(self) -> Bytes:
        """Return the pool as a numpy view of shape [n_pages, parts, page_part_bytes]."""
        view: Bytes = self.paged.numpy()
        return view


def gather(device: DeviceBytes, slots: Sequence[int], staging: StagingBytes, pages: Sequence[int]) -> None:
    """Copy device slot `slots[i]` into staging page `pages[i]`, for all i; the pages must differ.

    On CUDA this only queues the copy on the current stream. Raises ValueError where shapes or lengths differ.
    """
    _match(device, slots, staging, pages)
    if not slots:
        return
    if device.on_cpu:
        _move(_words(device.array()).swapaxes(0, 1), slots, _words(staging.array()), pages)
    else:
        _form(device, staging).gather(device.tensor, slots, staging.paged, pages)


def scatter(staging: StagingBytes, pages: Sequence[int], device: DeviceBytes, slots: Sequence[int]) -> None:
    """Copy staging page `pages[i]` into device slot `slots[i]`, for all i; the slots must differ.

    On CUDA this only queues the copy on the current stream. Raises ValueError where shapes or lengths differ.
    """
    for _ in scatter_layers(staging, pages, device, slots):
        pass


def scatter_layers(
    staging: StagingBytes, pages: Sequence[int], device: DeviceBytes, slots: Sequence[int]
) -> Iterator[None]:
    """`scatter` in steps, one for each of `device.layers`; on the CPU it is all one. Raises as `scatter` does."""
    _match(device, slots, staging, pages)
    if not slots:
        return
    if device.on_cpu:
        _move(_words(staging.array()), pages, _words(device.array()).swapaxes(0, 1), slots)
        yield
    else:
        form = _form(device, staging)
        yield from form.scatter(device.tensor, slots, staging.paged, pages, device.layers)


def _move(source: npt.NDArray[Any], ours: Sequence[int], target: npt.NDArray[Any], theirs: Sequence[int]) -> None:
    """On the CPU: page ours[i] of `source` to page theirs[i] of `target`, both [pages, parts, words].

    One strided assignment for each run, of the plain forms measured the fastest at every size of part.
    """
    for first, second, count in runs(ours, theirs):
        if count == 1:
            target[second] = source[first]
        else:
            target[second : second + count] = source[first : first + count]


def _words(view: Bytes) -> npt.NDArray[Any]:
    """The same bytes in the widest words that a part is a whole number of."""
    return view.view(
        next(word for word in (np.uint64, np.uint32, np.uint8) if view.shape[2] % np.dtype(word).itemsize == 0)
    )


def _form(device: DeviceBytes, staging: StagingBytes) -> Form:
    from stagehold.kernels.forms import form_for

    return form_for(device.tensor, pinned=staging.pinned)


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
        import torch

        torch.cuda.synchronize(device.tensor.device)


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
