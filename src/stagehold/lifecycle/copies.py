"""Copies between device pool and staging, as operations that end at a later poll.

A copy is sent off in program order, like work on one stream: what runs after it sees its bytes. Its *report* comes
later, and until then the pages at both ends stay under the IO ticket of the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stagehold.kernels.copies import DeviceBytes, StagingBytes, gather, scatter


class Copies(Protocol):
    """When a copy that was sent off is reported as ended."""

    def sent(self, number: int, tick: int) -> None:
        """Operation `number` was sent off in `tick`."""

    def poll(self, tick: int) -> list[int]:
        """Numbers of the operations that have ended, ascending; each is reported once."""


class PromptCopies:
    """Every copy has ended by the next poll, as on a CPU."""

    def __init__(self) -> None:
        self._sent: list[int] = []

    def sent(self, number: int, tick: int) -> None:  # noqa: ARG002
        """Operation `number` was executed at once; report it at the next poll."""
        self._sent.append(number)

    def poll(self, tick: int) -> list[int]:  # noqa: ARG002
        """All copies sent since the last poll."""
        ended, self._sent = self._sent, []
        return ended


class Bytes:
    """The tensors behind device pool and staging, and the two copies between them. Absent in runs without bytes."""

    def __init__(self, device: DeviceBytes, staging: StagingBytes) -> None:
        self.device = device
        self.staging = staging

    def load(self, pages: Sequence[int], slots: Sequence[int]) -> None:
        """Staging pages to device slots, in order."""
        scatter(self.staging, pages, self.device, slots)

    def save(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        """Device slots to staging pages, in order."""
        gather(self.device, slots, self.staging, pages)

    def copies(self) -> tuple[Any, ...]:
        """Copies of both tensors, for a snapshot."""
        return self.device.tensor.clone(), self.staging.tensor.clone()

    def overwrite(self, copies: tuple[Any, ...]) -> None:
        """Put what `copies` gave back in place."""
        self.device.tensor.copy_(copies[0])
        self.staging.tensor.copy_(copies[1])

    def page(self, page: int) -> memoryview:
        """The bytes of one staging page, writable, contiguous."""
        return self.staging.page(page)
