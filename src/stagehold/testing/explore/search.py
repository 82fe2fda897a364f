"""Every situation of a small world, breadth first, and from each the way to its end.

Owns the graph. A situation is kept as what its moves begin from until they have been made, then as a number. One that
breaks a rule is not followed.
"""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import dataclass, field

from stagehold.testing.explore.broken import unheard
from stagehold.testing.explore.choices import Move, moves, usual
from stagehold.testing.explore.keep import Kept
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.small import SmallWorld

NOBODY = 0xFFFFFFFF
"""In place of a number: no situation."""

FAIR_END, UNKNOWN = -1, -2
"""In place of the next situation of an ordinary scheduler: everything has ended; not looked at."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, in a sentence, and the program that breaks it."""

    what: str
    program: tuple[Move, ...]


@dataclass(slots=True)
class Graph:
    """Situations by number: who found them and by which move, and where an ordinary scheduler goes from them."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    parents: array[int] = field(default_factory=lambda: array("I"))
    by: list[Move] = field(default_factory=list)
    next: array[int] = field(default_factory=lambda: array("l"))
    ticks: bytearray = field(default_factory=bytearray)  # whether the step to `next` is a tick
    ticked: bytearray = field(default_factory=bytearray)  # whether some tick ends in it
    transitions: int = 0

    def way_to(self, number: int) -> list[Move]:
        """The moves from the beginning to a situation: no way is shorter."""
        way = []
        while self.parents[number] != NOBODY:
            way.append(self.by[number])
            number = self.parents[number]
        return way[::-1]


@dataclass(slots=True)
class Search:
    """A search of one world, up to `most` situations, to the first violation. `whole`: moves that commute, too."""

    world: SmallWorld
    most: int = 1 << 30
    whole: bool = False
    graph: Graph = field(default_factory=Graph)
    violations: list[Violation] = field(default_factory=list)
    cut_off: bool = False
    seconds: float = 0.0

    def run(self) -> Search:
        """Search until nothing is new."""
        gc.collect()
        gc.freeze()  # what was loaded is never garbage: the collector need not look at it again and again
        start = time.perf_counter()
        try:
            with unheard():
                self._run(Pair(self.world))
        finally:
            gc.unfreeze()
        self.seconds = time.perf_counter() - start
        return self

    def _run(self, pair: Pair) -> None:
        graph = self.graph
        frontier: dict[int, Kept] = {}
        self._enter(pair, frontier, NOBODY, ())
        number = 0
        while number < len(graph.by) and not self.violations:
            if len(graph.by) > self.most:
                self.cut_off = True
                break
            self._expand(pair, frontier, number)
            number += 1

    def _expand(self, pair: Pair, frontier: dict[int, Kept], number: int) -> None:
        kept = frontier.pop(number)
        pair.restore(kept)
        targets: dict[Move, int] = {}
        order = usual(pair)
        ended = pair.ended
        if ended:
            self._rest(pair, number)
        for at, move in enumerate(moves(pair, whole=self.whole)):
            if at:
                pair.restore(kept)
            after = self._try(pair, frontier, number, move)
            if after is None:
                return
            targets[move] = after
        for move in () if ended else order:
            if targets[move] != number:
                self.graph.next[number] = targets[move]
                self.graph.ticks[number] = move[0] == "tick"
                return

    def _rest(self, pair: Pair, number: int) -> None:
        self.graph.next[number] = FAIR_END
        try:
            pair.rest()
        except AssertionError as error:
            self.violations.append(Violation(_said(error), tuple(self.graph.way_to(number))))

    def _try(self, pair: Pair, frontier: dict[int, Kept], number: int, move: Move) -> int | None:
        """Make a move; the situation after it, None where a rule is broken."""
        self.graph.transitions += 1
        try:
            pair.do(move)
            return self._enter(pair, frontier, number, move)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises here is a find
            self.violations.append(Violation(_said(error), (*self.graph.way_to(number), move)))
            return None

    def _enter(self, pair: Pair, frontier: dict[int, Kept], parent: int, move: Move) -> int:
        graph = self.graph
        told = pair.told()
        found = graph.numbers.get(told)
        if found is None:
            found = graph.numbers[told] = len(graph.by)
            graph.by.append(move)
            graph.parents.append(parent)
            graph.next.append(UNKNOWN)
            graph.ticks.append(0)
            graph.ticked.append(0)
            frontier[found] = pair.save()
        graph.ticked[found] |= move[:1] == ("tick",)
        return found


def _said(error: Exception) -> str:
    kind = "" if type(error).__name__ == "Broken" else f"{type(error).__name__}: "
    return kind + str(error)
