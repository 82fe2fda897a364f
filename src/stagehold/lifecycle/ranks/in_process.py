"""N ranks in one process: engines of their own that meet in one exchange a tick.

Owns what the ranks have said in the round that is going on. It starts nothing and reads no clock: whoever runs the
ranks, in whatever interleaving, gives `pause`, which lets another rank go on (`stagehold.testing.ranks` has one that
draws it from a seed).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stagehold.lifecycle.errors import Misuse, RankLost
from stagehold.lifecycle.ranks.group import Facts

Pause = Callable[[], None]
"""Called by a rank that waits for the others: returns when some other rank has gone on, or never can."""


def _nobody() -> None:
    """Without anybody who lets the others go on, waiting for them would be for ever."""
    raise Misuse("exchange: the other ranks have not come to it, and there is no `pause` that would let them go on")


class InProcess:
    """A group of `size` ranks in this process; `member(rank)` is what the engine of a rank is given.

    `exchanges` and `gathers` count the rounds that all ranks have made.
    """

    def __init__(self, size: int, pause: Pause = _nobody) -> None:
        if size < 1:
            raise Misuse(f"a group of {size} ranks: expected at least one")
        self.size = size
        self.pause = pause
        self.exchanges = 0
        self.gathers = 0
        self._said: dict[int, Facts] = {}
        self._told: dict[int, bytes] = {}
        self._agreed: dict[int, Facts] = {}  # rank -> what it has not taken yet
        self._heard: dict[int, list[bytes]] = {}
        self._gone: dict[int, None] = {}
        self._mail: dict[tuple[int, int], deque[Facts]] = {}
        self.most_mail = 0  # vectors that were on their way from one rank to another at once

    def member(self, rank: int) -> Member:
        """The group as rank `rank` sees it."""
        if not 0 <= rank < self.size:
            raise Misuse(f"rank {rank}: expected 0 to {self.size - 1}")
        return Member(self, rank)

    def leave(self, rank: int) -> None:
        """The rank has ended: whoever waits for it, or will, learns that it is gone."""
        self._gone[rank] = None

    def exchange(self, rank: int, facts: Facts) -> Facts:
        """See `Group.exchange`."""
        assert rank not in self._said, f"rank {rank} exchanges twice in one round"
        self._said[rank] = facts
        while rank not in self._agreed:
            if len(self._said) == self.size:
                agreed = _least(self._said)
                self._said.clear()
                self.exchanges += 1
                self._agreed = {member: agreed.copy() for member in range(self.size)}
                break
            self._wait(rank, self._said)
        return self._agreed.pop(rank)

    def gather(self, rank: int, message: bytes) -> list[bytes]:
        """See `Group.gather`."""
        self._told[rank] = message
        while rank not in self._heard:
            if len(self._told) == self.size:
                heard = [self._told[member] for member in range(self.size)]
                self._told.clear()
                self.gathers += 1
                self._heard = {member: list(heard) for member in range(self.size)}
                break
            self._wait(rank, self._told)
        return self._heard.pop(rank)

    def send(self, rank: int, to: int, facts: Facts) -> None:
        """See `pipeline.Wires.send`."""
        mail = self._mail.setdefault((rank, to), deque())
        mail.append(facts.copy())
        self.most_mail = max(self.most_mail, len(mail))

    def receive(self, rank: int, sender: int) -> Facts:
        """See `pipeline.Wires.receive`."""
        mail = self._mail.setdefault((sender, rank), deque())
        while not mail:
            if sender in self._gone:
                raise RankLost(f"rank {rank}: rank {sender} of {self.size} has ended, and writes no more", (sender,))
            self.pause()
        return mail.popleft()

    def _wait(self, rank: int, here: dict[int, Facts] | dict[int, bytes]) -> None:
        gone = tuple(member for member in sorted(self._gone) if member not in here)
        if gone:
            names = ", ".join(f"rank {member}" for member in gone)
            raise RankLost(f"rank {rank}: {names} of {self.size} has ended, and nothing can be agreed on", gone)
        self.pause()


class Member:
    """One rank's place in an `InProcess` group."""

    staged = False

    def __init__(self, group: InProcess, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.size = group.size

    def exchange(self, facts: Facts) -> Facts:
        """See `Group.exchange`."""
        return self.group.exchange(self.rank, facts)

    def gather(self, message: bytes) -> list[bytes]:
        """See `Group.gather`."""
        return self.group.gather(self.rank, message)

    def send(self, to: int, facts: Facts) -> None:
        """See `pipeline.Wires.send`."""
        self.group.send(self.rank, to, facts)

    def receive(self, sender: int, length: int) -> Facts:  # noqa: ARG002
        """See `pipeline.Wires.receive`."""
        return self.group.receive(self.rank, sender)


def _least(said: dict[int, Facts]) -> Facts:
    """The element-wise minimum; ranks whose facts are of different lengths have nothing in common."""
    lengths = {rank: len(facts) for rank, facts in sorted(said.items())}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"rank {rank} {length}" for rank, length in lengths.items())
        raise Misuse(
            f"exchange: expected facts of one length from all ranks, got {told}; is operation_window the same?"
        )
    least: Facts = np.minimum.reduce(list(said.values()))
    return least
