"""Copies between device pool and staging, as operations that end at a later poll.

A copy is sent off in program order, like work on one stream: what runs after it sees its bytes. Its *report* comes
later, and until then the pages at both ends stay under the IO ticket of the operation.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from stagehold.kernels.transfers import Mark, Transfers


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


class LaneCopies:
    """Copies as their lanes report them: at the next poll on a CPU, on CUDA when the streams have passed them.

    A copy is sent off before its operation is, so everything sent off until then covers it, whatever else it covers.
    """

    def __init__(self, *transfers: Transfers) -> None:
        self._transfers = transfers
        self._sent: deque[tuple[int, tuple[Mark, ...]]] = deque()

    def sent(self, number: int, tick: int) -> None:  # noqa: ARG002
        """Operation `number` ends with the youngest copy of each lane."""
        self._sent.append((number, tuple(one.mark() for one in self._transfers)))

    def poll(self, tick: int) -> list[int]:  # noqa: ARG002
        """Operations whose copies have all ended."""
        ended = []
        while self._sent and all(one.ended(mark) for one, mark in zip(self._transfers, self._sent[0][1], strict=True)):
            ended.append(self._sent.popleft()[0])
        return ended

    def __deepcopy__(self, memo: dict[int, Any]) -> LaneCopies:
        """For a snapshot, which settles the lanes: they are the machine's and go on, what was sent off has ended."""
        other = LaneCopies(*self._transfers)
        other._sent.extend(self._sent)
        return other


class Bytes(Transfers):
    """The tensors behind device pool and staging, and the two copies between them. Absent in runs without bytes."""

    def copies(self) -> tuple[Any, ...]:
        """Copies of both tensors, for a snapshot."""
        self.settle()
        return self.device.tensor.clone(), self.staging.tensor.clone()

    def overwrite(self, copies: tuple[Any, ...]) -> None:
        """Put what `copies` gave back in place."""
        self.settle()
        self.device.tensor.copy_(copies[0])
        self.staging.tensor.copy_(copies[1])

    def page(self, page: int) -> memoryview:
        """The bytes of one staging page, writable, contiguous."""
        return self.staging.page(page)


class Tensors(dict[str, Bytes]):
    """The bytes of every component, by its name."""

    def copies(self) -> tuple[Any, ...]:
        """Copies of all tensors, for a snapshot."""
        return tuple(one.copies() for one in self.values())

    def overwrite(self, copies: tuple[Any, ...]) -> None:
        """Put what `copies` gave back in place."""
        for one, copy in zip(self.values(), copies, strict=True):
            one.overwrite(copy)
