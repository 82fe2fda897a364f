"""The copies between one device pool and its staging as the engine sees them: sent off now, ended later.

Both ends of a copy belong to whoever sent it until `ended` says so of a `mark` made after it: nothing else tells that
a buffer is free. On the CPU every copy has ended when the call returns, and the caller goes the same way.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagehold.kernels.copies import DeviceBytes, StagingBytes, gather, scatter_layers


@dataclass(frozen=True, slots=True)
class PageShape:
    """What a page of one component is made of: `parts` pieces of `part_bytes`, `layer_parts` of them to a layer."""

    parts: int
    part_bytes: int
    layer_parts: int = 2

    @property
    def page_bytes(self) -> int:
        """Bytes of one page: of one staging page of this component, and of one page in its store."""
        return self.parts * self.part_bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the order of copies: how many loads and saves had been sent off."""

    loads: int
    saves: int


class Transfers:
    """Loads to `device` and saves from it. The two run side by side; a save comes behind the loads sent before it.

    On CUDA both come behind what is queued on the current stream, so the engine is called under the stream that the
    model's forward passes run on.
    """

    def __init__(self, device: DeviceBytes, staging: StagingBytes) -> None:
        self.device = device
        self.staging = staging
        weakref.finalize(self, _settle, device)  # memory is not given up under a copy, however an engine ends

    def load(self, pages: Sequence[int], slots: Sequence[int]) -> None:
        """Send staging pages to device slots, in order, layer by layer: see `DeviceBytes.wait_layer`."""
        self.device.loads.submit_steps(lambda: scatter_layers(self.staging, pages, self.device, slots))

    def save(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        """Send device slots to staging pages, in order."""
        self.device.saves.submit(lambda: gather(self.device, slots, self.staging, pages), behind=self.device.loads)

    def move(self, copies: Sequence[tuple[int, int]]) -> None:
        """Send device slots to other slots of the same pool, (from, to), in order; they count as loads."""
        self.device.loads.submit(lambda: self._move(copies))

    def _move(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self.device.tensor[:, target] = self.device.tensor[:, source]

    def mark(self) -> Mark:
        """This moment: all copies sent off so far lie before it."""
        return Mark(self.device.loads.submitted, self.device.saves.submitted)

    def ended(self, mark: Mark) -> bool:
        """Whether every copy before `mark` has ended. Never blocks."""
        loads, saves = self.device.loads, self.device.saves
        loads.poll()
        saves.poll()
        return loads.finished >= mark.loads and saves.finished >= mark.saves

    def settle(self) -> None:
        """Wait until every copy has ended: before the tensors are read by the host, or given up."""
        _settle(self.device)


def _settle(device: DeviceBytes) -> None:
    device.loads.drain()
    device.saves.drain()


def attach(
    shapes: Mapping[str, PageShape], slots: Mapping[str, int], pages: Mapping[str, int], device: str = "cpu"
) -> dict[str, Transfers]:
    """A device pool and a staging pool for each component of `shapes`, by its name; they share nothing.

    `slots` and `pages` are the sizes of the two pools. On CUDA staging is pinned. Raises ValueError naming the
    component whose size is missing or below one.
    """
    return {
        name: Transfers(
            DeviceBytes(
                shape.parts, shape.part_bytes, _size("slots", slots, name), device, layer_parts=shape.layer_parts
            ),
            StagingBytes(shape.parts, shape.part_bytes, _size("pages", pages, name), pinned=device != "cpu"),
        )
        for name, shape in shapes.items()
    }


def _size(what: str, sizes: Mapping[str, int], name: str) -> int:
    if sizes.get(name, 0) < 1:
        raise ValueError(f"{what} of component {name!r}: expected at least 1, got {sizes.get(name)}")
    return sizes[name]
