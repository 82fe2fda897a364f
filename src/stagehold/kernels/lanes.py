"""A lane runs copies in the order of their submission and tells when each is finished.

On the CPU a copy runs at submission, in program order; on CUDA it is queued on a stream of its own, behind
all work of the current stream. Either way it is reported by a later `poll`, so that the caller has one flow
for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any


class CopyLane:
    """Copies under way on one device. Tickets ascend from 0, and finish in their order.

    `streams` is what streams and events come from: torch.cuda where the device is not the CPU.
    """

    def __init__(self, device: str = "cpu", streams: Any = None) -> None:
        if streams is None and not device.startswith("cpu"):
            import torch

            streams = torch.cuda
        self._streams = streams
        self._stream: Any = None if streams is None else streams.Stream(device=device)
        self._next_ticket = 0
        self._under_way: deque[tuple[int, Any]] = deque()
        self._steps: list[Any] = []  # an event for each step of the youngest copy, where there are streams

    @property
    def submitted(self) -> int:
        """How many copies were submitted; the youngest has the ticket below."""
        return self._next_ticket

    @property
    def finished(self) -> int:
        """How many of them have been polled as finished: all tickets below."""
        return self._next_ticket - len(self._under_way)

    def submit(self, copy: Callable[[], object], behind: CopyLane | None = None) -> int:
        """Start `copy` and return its ticket; its memory is in use until the ticket is polled.

        `behind` is another lane whose copies so far come first.
        """

        def in_one() -> Iterator[None]:
            copy()
            yield

        return self.submit_steps(in_one, behind)

    def submit_steps(self, copy: Callable[[], Iterator[None]], behind: CopyLane | None = None) -> int:
        """`submit` a copy in steps: the iterator that `copy` gives starts one at each turn. See `wait_step`."""
        event = None
        if self._stream is None:
            deque(copy(), maxlen=0)
        else:
            event = self._queue(copy, behind)
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._under_way.append((ticket, event))
        return ticket

    def wait_step(self, step: int) -> None:
        """Make the current stream, not the caller, wait for step `step` of the youngest copy and for all older copies.

        A copy of fewer steps is waited for as a whole. On the CPU all of it has happened.
        """
        if self._steps:
            self._current().wait_event(self._steps[min(step, len(self._steps) - 1)])

    def poll(self) -> list[int]:
        """Return the tickets that finished since the last poll, ascending. Never blocks."""
        finished = []
        while self._under_way and _is_over(self._under_way[0][1]):
            finished.append(self._under_way.popleft()[0])
        return finished

    def drain(self) -> list[int]:
        """Wait for everything under way; return the tickets not polled before."""
        if self._stream is not None:
            self._stream.synchronize()
        return self.poll()

    def in_flight(self) -> list[int]:
        """Return the tickets not yet polled, ascending."""
        return [ticket for ticket, _ in self._under_way]

    def _queue(self, copy: Callable[[], Iterator[None]], behind: CopyLane | None) -> Any:
        # The forward that wrote the bytes is on the current stream; the copy must not overtake it.
        self._stream.wait_stream(self._current())
        if behind is not None:
            self._stream.wait_stream(behind._stream)  # noqa: SLF001 - a lane's own kind
        with self._streams.stream(self._stream):
            self._steps = [self._stream.record_event() for _ in copy()]
            return self._stream.record_event()

    def _current(self) -> Any:
        return self._streams.current_stream(self._stream.device)


def _is_over(event: Any) -> bool:
    return event is None or bool(event.query())
