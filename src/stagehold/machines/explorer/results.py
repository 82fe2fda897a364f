"""What the explorer answers, and how a counterexample is told."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from stagehold.machines.explorer.fairness import Lasting
from stagehold.machines.explorer.moves import Labels
from stagehold.machines.explorer.search import NOBODY, Graph
from stagehold.machines.explorer.steps import Fault


@dataclass(frozen=True, slots=True)
class WorldResult:
    """What a search of one world found. Counts, but for the texts: sentences, rows and moves in words."""

    name: str
    states: int
    moves: int
    deadlocks: int
    leaks: int
    invariant_breaches: tuple[str, ...]
    """Each broken rule once, in a sentence."""
    unfair_cycles: int
    cannot_end: int
    cyclic_parts: int
    repeated_moves: tuple[str, ...]
    """The moves left inside cycles: what may happen again and again in a run that never ends."""
    rows_taken: tuple[str, ...]
    counterexample: tuple[str, ...]
    """The moves that lead to the first problem, and the problem as last line; empty where there is none."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.counterexample


def way_to(graph: Graph, labels: Labels, number: int) -> list[str]:
    """The moves from a beginning to a situation."""
    way: list[str] = []
    while graph.parents[number] != NOBODY:
        parent = graph.parents[number]
        edge = next(edge for edge in graph.moves_of(parent) if graph.targets[edge] == number)
        way.append(labels.text(graph.labels[edge]))
        number = parent
    return way[::-1]


def cycle_through(graph: Graph, labels: Labels, lasting: Lasting, edge: int) -> tuple[int, list[str]]:
    """A shortest cycle that begins with the move `edge`: the situation where it begins, and its moves."""
    start, first = source_of(graph, edge), graph.targets[edge]
    part = lasting.part_of
    back: dict[int, tuple[int, int]] = {}
    todo = deque([first])
    while start != first and start not in back:
        here = todo.popleft()
        for leaving in graph.moves_of(here):
            there = graph.targets[leaving]
            if part[there] == part[start] and there not in back:
                back[there] = (here, leaving)
                todo.append(there)
    way: list[str] = []
    here = start
    while here != first:
        here, leaving = back[here]
        way.append(labels.text(graph.labels[leaving]))
    return start, [labels.text(graph.labels[edge]), *way[::-1]]


def source_of(graph: Graph, edge: int) -> int:
    """The situation that a move leaves."""
    return bisect_right(graph.heads, edge) - 1


def counterexample(graph: Graph, labels: Labels, lasting: Lasting) -> tuple[str, ...]:
    """The moves that lead to the first problem, and what it is."""
    if graph.problems:
        problem = graph.problems[0]
        last = [] if problem.label == NOBODY else [labels.text(problem.label)]
        return (*way_to(graph, labels, problem.situation), *last, problem.sentence)
    if lasting.deadlocks:
        return (*way_to(graph, labels, lasting.deadlocks[0]), "deadlock: something waits and no clock runs")
    if lasting.unfair_cycles:
        start, cycle = cycle_through(graph, labels, lasting, lasting.unfair_cycles[0])
        return (*way_to(graph, labels, start), "and then for ever:", *cycle)
    if lasting.cannot_end:
        return (*way_to(graph, labels, lasting.cannot_end[0]), "from here no way leads to the end")
    return ()


def count_leaks(graph: Graph) -> int:
    """Instances that ended and still owned something."""
    return sum(problem.fault is Fault.LEAK for problem in graph.problems)
