"""The copies between one device pool and its staging as the engine sees them: sent off now, ended later.

Both ends of a copy belong to whoever sent it until `ended` says so of a `mark` made after it: nothing else tells that
a buffer is free. On the CPU every copy has ended when the call returns, and the caller goes the same way.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from stagehold.kernels.copies import DeviceBytes, StagingBytes, gather, scatter_layers


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the order of copies: how many loads and saves had been sent off."""

    loads: int
    saves: int


class Transfers:
    """Loads to `device` and saves from it, for one component. They run side by side, a save behind the loads before it.

    On CUDA both come behind what is queued on the current stream, so the engine is called under the stream that the
    model's forward passes run on.
    """

    def __init__(self, device: DeviceBytes, staging: StagingBytes) -> None:
        self.device = device
        self.staging = staging
        weakref.finalize(self, _settle, device)  # memory is not given up under a copy, however an engine ends

    def load(self, pages: Sequence[int], slots: Sequence[int]) -> None:
        """Send staging pages to device slots, in order, layer by layer: see `DeviceBytes.wait_layer`."""
        self._forget_ended()
        self.device.loads.submit_steps(lambda: scatter_layers(self.staging, pages, self.device, slots))

    def save(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        """Send device slots to staging pages, in order."""
        self._forget_ended()
        self.device.saves.submit(lambda: gather(self.device, slots, self.staging, pages), behind=self.device.loads)

    def move(self, copies: Sequence[tuple[int, int]]) -> None:
        """Send device slots to other slots of the same pool, (from, to), in order; they count as loads."""
        self._forget_ended()
        self.device.loads.submit(lambda: self._move(copies))

    def _move(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self.device.tensor[:, target] = self.device.tensor[:, source]

    def mark(self) -> Mark:
        """This moment: all copies sent off so far lie before it."""
        return Mark(self.device.loads.submitted, self.device.saves.submitted)

    def ended(self, mark: Mark) -> bool:
        """Whether every copy before `mark` has ended. Never blocks."""
        self._forget_ended()
        return self.device.loads.finished >= mark.loads and self.device.saves.finished >= mark.saves

    def _forget_ended(self) -> None:
        """Let the lanes count what has ended, and keep no more of it: also for those who never ask."""
        self.device.loads.poll()
        self.device.saves.poll()

    def settle(self) -> None:
        """Wait until every copy has ended: before the tensors are read by the host, or given up."""
        _settle(self.device)


def _settle(device: DeviceBytes) -> None:
    device.loads.drain()
    device.saves.drain()
