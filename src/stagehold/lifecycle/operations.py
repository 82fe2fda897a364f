"""The operations in flight and the facts that one tick exchanges about them.

Every operation (a query, a fetch, a copy, a put, a probe) has an ascending number and a place in the exchange. What
a rank finds out about it is written to that place and acted on only after all ranks agree. With more operations
than places, the youngest wait in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from stagehold.cache.components.base import Component
from stagehold.cache.components.splice import restorable
from stagehold.cache.stores.protocol import Progress, Verdict


class Kind(StrEnum):
    """What an operation does."""

    QUERY = "query"
    FETCH = "fetch"
    LOAD = "load"
    COPY = "copy"
    PUT = "put"
    SELFTEST = "selftest"
    PROBE = "probe"


KINDS = tuple(Kind)

_ODD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_MARK = (1 << 40) - 1

COPIES = (Kind.LOAD, Kind.COPY)
"""Operations that no store is asked for, so that no store has anything to say about them."""

UNCOUNTED = 1 << 31
"""More keys than any operation has: what a store may call good where nobody has said how many it was asked for."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a lookup over [start, last) may end: at boundaries that every gating component can restore.

    It asks for the pages of the component that carries the tree first, then for those of each gate.
    """

    gates: tuple[Component, ...]
    start: int
    last: int

    def longest(self, verdicts: Sequence[Verdict], most: int) -> int:
        """Pages from `start` to the longest such end, at most `most`; 0 if there is none."""
        size = self.last - self.start
        there = [verdict is Verdict.HIT for verdict in verdicts]
        there += [False] * ((len(self.gates) + 1) * size - len(there))
        at = {gate.name: (place + 1) * size - self.start for place, gate in enumerate(self.gates)}
        covered = next((page for page in range(size) if not there[page]), size)
        limit = self.start + min(covered, most)
        return restorable(self.gates, self.start, limit, lambda name, page: there[at[name] + page]) - self.start


@dataclass(slots=True, eq=False)
class Operation:
    """One thing in flight, over `keys` pages. `good` and `fault` are agreed; what is only local stands in its place."""

    number: int
    kind: Kind
    owner: int
    start: Callable[[], None]
    epoch: int = 0
    keys: int = UNCOUNTED
    place: int = -1
    good: int = 0
    fault: bool = False
    ready: int = 0
    """Pages in front of those it asks for that were there already; `good` counts them, too."""
    unwanted: bool = False
    """Whether the store was asked to let it end early, for nobody waits for it."""
    ends: Ends | None = None
    """Where its pages may end, if not after any of them."""
    verdicts: tuple[Verdict, ...] = ()
    """What the store said here, kept for where the end is still to be agreed on."""
    proof: Callable[[], bool] | None = None
    """What else must hold here for its pages to be good; looked at once, when the store says that it has ended."""

    @property
    def speaks(self) -> bool:
        """Whether its end says anything of the store: not where it may have ended early because that was asked for."""
        return self.fault or not self.unwanted or self.good == self.ready + self.keys

    @property
    def mark(self) -> int:
        """This operation in this place, 40 bits: the sum over all of them tells whether two ranks fly the same."""
        word = (self.number << 20 | self.place << 4 | KINDS.index(self.kind)) * _ODD & _WORD
        return (word ^ word >> 29) * _ODD >> 24 & _MARK  # folded, or two that swap places would sum to the same


DONE, GOOD, FAULT = 0, 1, 2

FLIES, PROPOSED, ENDED = 0, 1, 2
"""What stands in the row of ends: the least of all ranks is how far the slowest one is."""


@dataclass(slots=True)
class Operations:
    """`window` places; rows of the fact table: FLIES to ENDED, good pages, and minus the fault flag (MIN = worst)."""

    window: int
    live: dict[int, Operation] = field(default_factory=dict)
    waiting: deque[Operation] = field(default_factory=deque)
    _free: list[int] = field(default_factory=list)
    _placed: dict[int, Operation] = field(default_factory=dict)
    _local: NDArray[np.int64] = field(init=False)
    _noted: set[int] = field(default_factory=set)  # places of which something is known here
    _next: int = 0
    shared: bool = False
    """Whether there are other ranks."""
    mark: int = 0
    """The sum of the marks of all operations that have places, 40 bits: which operations these are, and where."""

    def __post_init__(self) -> None:
        self._local = np.zeros((3, self.window), dtype=np.int64)
        self._free = list(range(self.window))

    def begin(
        self, kind: Kind, owner: int, start: Callable[[int], None], epoch: int = 0, keys: int = UNCOUNTED
    ) -> Operation:
        """A new operation over `keys` pages; `start(number)` sends it off now, or once a place is free."""
        self._next += 1
        number = self._next
        operation = Operation(number, kind, owner, lambda: start(number), epoch, keys)
        self.live[number] = operation
        self.waiting.append(operation)
        self.place()
        return operation

    def place(self) -> None:
        """Send off waiting operations while there are places, oldest first."""
        while self.waiting and self._free:
            operation = self.waiting.popleft()
            operation.place = heappop(self._free)
            self._placed[operation.place] = operation
            self.mark = (self.mark + operation.mark) & _MARK
            self._send(operation)

    def _send(self, operation: Operation) -> None:
        """Send it off. A store that raises at once has failed, like one that says so later; its effect goes on."""
        try:
            operation.start()
        except AssertionError:
            raise
        except Exception:
            if operation.kind in COPIES:
                raise  # nobody would ever say that it has ended
            self.note([Progress(operation.number, done=True, good=0, verdicts=(Verdict.FAILED,))])

    def withdraw(self, operation: Operation) -> bool:
        """End an operation that was never sent off; false if it flies."""
        if operation.place >= 0:
            return False
        self.waiting.remove(operation)
        del self.live[operation.number]
        return True

    def note(self, progress: Iterable[Progress]) -> None:
        """Write to their places what stores say. About what no store was asked, or has answered, it changes nothing."""
        for item in progress:
            operation = self.live.get(item.ticket)
            if operation is None or operation.kind in COPIES or not self._is_open(operation):
                continue
            good = int(item.good)
            honest = 0 <= good <= operation.keys
            if item.done and operation.proof is not None and not operation.proof():
                good = 0
            ended = ENDED if item.done else FLIES
            if item.done and operation.ends is not None and honest:
                operation.verdicts = tuple(item.verdicts)
                good = operation.ends.longest(operation.verdicts, operation.keys)
                ended = PROPOSED if self.shared else ENDED
            fault = not honest or any(v.is_fault for v in item.verdicts)
            self._noted.add(operation.place)
            self._local[DONE, operation.place] = ended
            self._local[GOOD, operation.place] = operation.ready + (good if honest else 0)
            if item.done and fault:
                self._local[FAULT, operation.place] = -1

    def _is_open(self, operation: Operation) -> bool:
        """Whether it was sent off, and has not been said to have ended: an end is said once."""
        return operation.place >= 0 and not self._local[DONE, operation.place]

    def finish(self, numbers: Iterable[int]) -> None:
        """Local copies that ended (all of them good); numbers of no copy in flight change nothing."""
        for number in numbers:
            operation = self.live.get(number)
            if operation is not None and operation.kind in COPIES and self._is_open(operation):
                self._noted.add(operation.place)
                self._local[DONE, operation.place] = ENDED

    @property
    def asked(self) -> bool:
        """Whether anything is in flight, or waits to be, that a store is asked for."""
        return any(operation.kind not in COPIES for operation in self.live.values())

    def facts(self) -> NDArray[np.int64]:
        """The fact table as one vector of 3 x window elements."""
        return self._local.reshape(-1)

    def apply(self, agreed: NDArray[np.int64]) -> list[Operation]:
        """Take over agreed facts; returns the operations that ended, by number. Their places are free again.

        What is agreed is a minimum, so nothing is where nothing is known here: those places are not looked at.
        """
        if not self._noted:
            return []
        table = agreed.reshape(3, self.window)
        ended = []
        for place in sorted(self._noted):
            operation = self._placed[place]
            # A rank that has heard nothing counts what was ready all the same.
            operation.good = max(operation.ready, int(table[GOOD, place]))
            if table[DONE, place] == PROPOSED:
                self._settle(operation)
            elif table[DONE, place]:
                operation.fault = bool(table[FAULT, place])
                ended.append(operation)
        for operation in ended:
            self.retire(operation)
        return sorted(ended, key=lambda operation: operation.number)

    def _settle(self, operation: Operation) -> None:
        """All ranks have proposed an end, and the least may be none of another's: propose again, none beyond it.

        It has ended once the least is every rank's proposal. Each further round moves it back, so that they are few.
        """
        assert operation.ends is not None, "only a lookup with ends is proposed"
        good = operation.ends.longest(operation.verdicts, operation.good)
        self._local[GOOD, operation.place] = good
        self._local[DONE, operation.place] = ENDED if good == operation.good else PROPOSED

    def told(self) -> list[str]:
        """Every live operation by number, and what is known of it here, for people."""
        return [self._told(operation) for _, operation in sorted(self.live.items())]

    def _told(self, operation: Operation) -> str:
        who = f"{operation.number} {operation.kind} of {operation.owner}"
        if operation.place < 0:
            return f"{who} waits"
        done, good, fault = self._local[:, operation.place].tolist()
        state = ("flies", "proposes", "failed" if fault else "done")[done]
        return f"{who} at {operation.place} {state}, {good} good"

    def retire(self, operation: Operation) -> None:
        """The operation is over: its place can be used by another from the next exchange on."""
        del self._placed[operation.place]
        del self.live[operation.number]
        self.mark = (self.mark - operation.mark) & _MARK
        self._local[:, operation.place] = 0
        self._noted.discard(operation.place)
        heappush(self._free, operation.place)
