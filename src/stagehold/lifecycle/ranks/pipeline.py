"""Stages of a pipeline: what the first one agrees on is its record of the tick, and the others do exactly that.

Ranks of one stage make one exchange a tick, as everywhere. Between stages nothing is exchanged: the record goes down,
and each stage's own facts go up, to be counted by the first stage a fixed number of ticks later. So an operation ends
in the tick in which the first stage says so, and the first stage never says so before every stage has it.

Owns the order of these messages and how many are on their way: `lag` at most, each way, to and from each stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.facts import TAIL, WORDS, Facts, differing
from stagehold.lifecycle.operations import ENDED
from stagehold.lifecycle.ranks.group import Group

HALF = TAIL // 2


class Wires(Protocol):
    """Vectors from rank to rank, in order; ranks are numbered through all stages."""

    def send(self, to: int, facts: Facts) -> None:
        """Send without waiting for the other; it is the caller who bounds what is on its way."""

    def receive(self, sender: int, length: int) -> Facts:
        """The next vector from `sender`; `RankLost` where none comes in time."""


class FirstStage:
    """The stage that decides; `counterparts` are the ranks of the other stages that this rank writes to.

    A report counts `lag` ticks (at least one) after it was made: enough for a record to go down and a report to come
    up again, or the first stage waits. It counts for an operation only if it was made after the place had become its.
    What is on its way is of one engine: another engine needs another group, and none can go back to a snapshot.
    """

    staged = True

    def __init__(self, stage: Group, wires: Wires, counterparts: Sequence[int], lag: int) -> None:
        if lag < 1:
            raise Misuse(f"lag {lag}: expected at least one tick")
        self.size, self.rank = stage.size, stage.rank
        self.lag = lag
        self.exchanges = 0
        self._stage = stage
        self._wires = wires
        self._counterparts = tuple(counterparts)
        self._told: deque[Facts] = deque()  # the tails of this stage's last `lag` agreements, oldest first
        self._freed = np.zeros(0, dtype=np.int64)  # by place: the last exchange in which its operation ended

    def exchange(self, facts: Facts) -> Facts:
        """See `Group.exchange`."""
        self.exchanges += 1
        agreed = self._stage.exchange(self._with_reports(facts))
        places = (len(facts) - TAIL) // 3
        self._freed[agreed[:places] == ENDED] = self.exchanges
        self._told.append(facts[-TAIL:].copy())
        for rank in self._counterparts:
            self._wires.send(rank, agreed)
        return agreed

    def _with_reports(self, facts: Facts) -> Facts:
        """This rank's facts, as far as its counterparts in all other stages have them, too."""
        merged = facts.copy()
        if not len(self._freed):
            self._freed = np.zeros((len(facts) - TAIL) // 3, dtype=np.int64)
        if self.exchanges <= self.lag:
            merged[:-TAIL] = 0  # nobody else has said anything yet
            return merged
        made_in, then = self.exchanges - self.lag, self._told.popleft()
        known = np.tile(made_in > self._freed, 3)
        for rank in self._counterparts:
            report = self._wires.receive(rank, len(facts))
            merged[:-TAIL] = np.minimum(merged[:-TAIL], np.where(known, report[:-TAIL], 0))
            merged = self._with_tail(merged, report[-TAIL:], then)
        return merged

    def _with_tail(self, merged: Facts, report: Facts, then: Facts) -> Facts:
        """What a stage lacked then, it lacks now; and if its words were not ours, no agreement is the same."""
        for half in (slice(WORDS - TAIL, -HALF), slice(WORDS - HALF, None)):
            at = slice(half.start, half.stop)
            past = slice(TAIL + half.start, TAIL + (half.stop or 0))
            merged[at] = np.minimum(merged[at], merged[at] + (report[past] - then[past]))
        return merged if words(report) == words(then) else differing(merged)

    def gather(self, message: bytes) -> list[bytes]:
        """See `Group.gather`; the ranks of this stage."""
        return self._stage.gather(message)


class LaterStage:
    """A stage that does what the first one has recorded; `leader` is the rank of the first stage that writes to it."""

    staged = True

    def __init__(self, stage: Group, wires: Wires, leader: int) -> None:
        self.size, self.rank = stage.size, stage.rank
        self.exchanges = 0
        self._stage = stage
        self._wires = wires
        self._leader = leader

    def exchange(self, facts: Facts) -> Facts:
        """See `Group.exchange`: the record of the first stage, whatever has ended here meanwhile."""
        self.exchanges += 1
        own = self._stage.exchange(facts)
        self._wires.send(self._leader, own)
        record = self._wires.receive(self._leader, len(facts))
        return record if words(own[-TAIL:]) == words(record[-TAIL:]) else differing(record)

    def gather(self, message: bytes) -> list[bytes]:
        """See `Group.gather`; the ranks of this stage."""
        return self._stage.gather(message)


def words(tail: Facts) -> list[int]:
    """What must be the same, least and most, of a vector's tail."""
    return [*tail[:WORDS].tolist(), *tail[HALF : HALF + WORDS].tolist()]


def staged(stage: Group, wires: Wires, number: int, *, stages: int, lag: int) -> FirstStage | LaterStage:
    """The group of one rank of stage `number` (from 0) of a pipeline, to be given to its engine.

    `stage` is the group of its stage, `wires` reach all ranks of all stages, numbered stage by stage, `stage.size` in
    each. What later stages say counts `lag` ticks later: at least as many as the last is behind the first. `Misuse`
    for a stage that there is not.
    """
    if not 0 <= number < stages:
        raise Misuse(f"stage {number} of {stages}: expected 0 to {stages - 1}")
    if number:
        return LaterStage(stage, wires, stage.rank)
    return FirstStage(stage, wires, [other * stage.size + stage.rank for other in range(1, stages)], lag)
