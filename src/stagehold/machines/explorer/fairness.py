"""What is wrong with infinite runs: places where nothing moves on, and cycles that nobody leaves.

A run is *fair* if a clock that runs for ever fires. Two kinds of cycle are refused: one in which something waits
although every clock that runs in all of it also fires in it (a fair run can stay there for ever), and one which
contains a move that must not repeat (a launch, a fetch, a retry: some row should have counted it).
Neither the end of an IO nor the end of an outage is ever taken for granted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stagehold.machines.explorer import moves
from stagehold.machines.explorer.moves import Labels
from stagehold.machines.explorer.search import NOBODY, Graph


@dataclass(frozen=True, slots=True)
class Lasting:
    """What the graph says about runs that never end. Situations and moves are numbers."""

    deadlocks: tuple[int, ...]
    cannot_end: tuple[int, ...]
    unfair_cycles: tuple[int, ...]
    """One telling move (its position in the graph) of each cyclic part that is refused."""
    cyclic_parts: int
    repeated: tuple[int, ...]
    """Labels of the moves left inside cycles."""
    part_of: NDArray[np.uint32]


def strong_parts(heads: Sequence[int], targets: Sequence[int]) -> array[int]:
    """For each situation its strongly connected part (Tarjan's algorithm, with a stack of its own)."""
    count = len(heads) - 1
    order, low = array("I", [0]) * count, array("I", [0]) * count
    part, cursor = array("I", [NOBODY]) * count, array("I", heads[:count])
    stack: list[int] = []
    clock = parts = 0
    for root in range(count):
        path = [] if order[root] else [root]
        while path:
            here = path[-1]
            if not order[here]:
                clock += 1
                order[here] = low[here] = clock
                stack.append(here)
            at, end, lowest = cursor[here], heads[here + 1], low[here]
            deeper = False
            while at < end:
                there = targets[at]
                at += 1
                if not order[there]:
                    path.append(there)
                    deeper = True
                    break
                if part[there] == NOBODY and order[there] < lowest:
                    lowest = order[there]
            cursor[here], low[here] = at, lowest
            if deeper:
                continue
            path.pop()
            if path and lowest < low[path[-1]]:
                low[path[-1]] = lowest
            if lowest == order[here]:
                parts = close_part(stack, part, here, parts)
    return part


def close_part(stack: list[int], part: array[int], root: int, number: int) -> int:
    """Takes a finished part off the stack; the number of the next one."""
    while True:
        member = stack.pop()
        part[member] = number
        if member == root:
            return number + 1


class Fairness:
    """Judges the runs of one graph. `bits` are those of the clocks in `armed`."""

    def __init__(self, graph: Graph, labels: Labels, bits: dict[tuple[moves.Clock, int], int]) -> None:
        self.graph = graph
        self.labels = labels
        self.bits = bits
        self.count = len(graph.situations)
        heads = np.frombuffer(graph.heads, dtype=np.uint32)
        self.targets = np.frombuffer(graph.targets, dtype=np.uint32)
        self.sources = np.repeat(np.arange(self.count, dtype=np.uint32), np.diff(heads))
        self.edge_labels = np.frombuffer(graph.labels, dtype=np.uint16)
        self.armed = np.frombuffer(graph.armed, dtype=np.uint64)
        self.waits = np.frombuffer(graph.waits, dtype=np.bool_)
        self.closed = np.frombuffer(graph.closed, dtype=np.bool_)

    def judge(self) -> Lasting:
        """Everything about runs that never end."""
        part_of = np.frombuffer(strong_parts(self.graph.heads, self.graph.targets), dtype=np.uint32)
        inside = part_of[self.sources] == part_of[self.targets]
        repeated = np.unique(self.edge_labels[inside])
        return Lasting(
            deadlocks=self.deadlocks(),
            cannot_end=self.cannot_end(),
            unfair_cycles=self.unfair_cycles(part_of, inside),
            cyclic_parts=len(np.unique(part_of[self.sources[inside]])),
            repeated=tuple(int(label) for label in repeated),
            part_of=part_of,
        )

    def deadlocks(self) -> tuple[int, ...]:
        """Something waits and no clock runs: with hung IO, nothing would ever happen again."""
        stuck = self.waits & ~self.closed & (self.armed == 0)
        return tuple(int(number) for number in np.flatnonzero(stuck))

    def cannot_end(self) -> tuple[int, ...]:
        """Situations from which no way leads to the end, aborts aside."""
        aborts = [number for number, (move, _, _) in enumerate(self.labels.moves) if move is moves.ABORT]
        kept = ~np.isin(self.edge_labels, aborts)
        sources, targets = self.sources[kept], self.targets[kept]
        can = np.frombuffer(self.graph.ends, dtype=np.bool_) | self.closed
        before = -1
        while before != (before := int(can.sum())):
            can[sources[can[targets]]] = True
        return tuple(int(number) for number in np.flatnonzero(~can))

    def unfair_cycles(self, part_of: NDArray[np.uint32], inside: NDArray[np.bool_]) -> tuple[int, ...]:
        """A move in each cyclic part that a fair run may stay in, or that repeats what must be counted."""
        fires, repeats = self.label_facts()
        edges = np.flatnonzero(inside)
        labels, sources = self.edge_labels[edges], part_of[self.sources[edges]]
        parts = int(part_of.max()) + 1
        cyclic, uncounted, waiting = (np.zeros(parts, dtype=np.bool_) for _ in range(3))
        cyclic[sources] = True
        uncounted[sources[~repeats[labels]]] = True
        waiting[part_of[self.waits]] = True
        always = np.full(parts, np.iinfo(np.uint64).max, dtype=np.uint64)
        np.bitwise_and.at(always, part_of, self.armed)
        fired = np.zeros(parts, dtype=np.uint64)
        np.bitwise_or.at(fired, sources, fires[labels])
        bad = cyclic & (uncounted | (waiting & ((always & ~fired) == 0)))
        # The telling move of a part: one that must not repeat, else one of the scheduler or a clock, else any.
        telling = np.zeros(parts, dtype=np.uint32)
        for chosen in (np.ones_like(repeats), fires > 0, ~repeats):
            telling[sources[chosen[labels]][::-1]] = edges[chosen[labels]][::-1]
        return tuple(sorted(int(edge) for edge in telling[bad]))

    def label_facts(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """For each label: the bit of the clock that fires with it, and whether it may repeat for ever."""
        known = self.labels.moves
        fires = [self.bits[(move.clock, who)] if move.clock else 0 for move, who, _ in known]
        return np.array(fires, dtype=np.uint64), np.array([move.repeats for move, _, _ in known], dtype=np.bool_)
