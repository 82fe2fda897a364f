"""Breadth-first search over every situation of a world, and what is wrong with single situations.

Owns the graph: situations by number, their moves as flat arrays. A situation that breaks a rule is not followed.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from stagehold.machines.explorer.product import Product
from stagehold.machines.explorer.steps import Breach, Fault

NOBODY = 0xFFFFFFFF
"""In place of a number: no situation, or no move."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing found: where, and in one sentence. `label` is the move that showed it, if it was a move."""

    situation: int
    sentence: str
    fault: Fault
    label: int = NOBODY


@dataclass(slots=True)
class Graph:
    """Situations 0..n-1 in the order in which they were found; moves of `i` at `heads[i]:heads[i + 1]`."""

    situations: list[bytes] = field(default_factory=list)
    heads: array[int] = field(default_factory=lambda: array("I", [0]))
    targets: array[int] = field(default_factory=lambda: array("I"))
    labels: array[int] = field(default_factory=lambda: array("H"))
    parents: array[int] = field(default_factory=lambda: array("I"))
    armed: array[int] = field(default_factory=lambda: array("Q"))
    ends: bytearray = field(default_factory=bytearray)
    waits: bytearray = field(default_factory=bytearray)
    closed: bytearray = field(default_factory=bytearray)
    problems: list[Problem] = field(default_factory=list)

    def moves_of(self, number: int) -> range:
        """The moves that leave a situation."""
        return range(self.heads[number], self.heads[number + 1])


class Search:
    """Builds the graph of one product."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.graph = Graph()
        self.numbers: dict[bytes, int] = {}

    def run(self) -> Graph:
        """Every situation that can be reached, with its moves."""
        for beginning in self.product.beginnings():
            self.number(beginning, NOBODY)
        situations = self.graph.situations
        number = 0
        while number < len(situations):
            self.expand(number, situations[number])
            number += 1
        return self.graph

    def number(self, situation: bytes, parent: int) -> int:
        """The number of a situation, a new one where it is seen first."""
        found = self.numbers.get(situation)
        if found is None:
            found = self.numbers[situation] = len(self.graph.situations)
            self.graph.situations.append(situation)
            self.graph.parents.append(parent)
        return found

    def expand(self, number: int, situation: bytes) -> None:
        """Checks one situation and finds what may follow it."""
        graph, product = self.graph, self.product
        follows = self.follow(number, situation)
        graph.ends.append(product.ended(situation))
        graph.waits.append(product.waits(situation))
        numbers, targets, labels = self.numbers, graph.targets, graph.labels
        for label, after in follows:
            target = numbers.get(after)
            targets.append(self.number(after, number) if target is None else target)
            labels.append(label)
        graph.heads.append(len(targets))

    def follow(self, number: int, situation: bytes) -> list[tuple[int, bytes]]:
        """The moves of a situation that breaks no rule; none for one that does."""
        graph, product = self.graph, self.product
        try:
            product.check(situation)
            moves = product.moves(situation)
            if not product.found:
                product.check_visits()
        except Breach as breach:
            graph.problems.append(Problem(number, breach.sentence, breach.fault))
            graph.armed.append(0)
            graph.closed.append(1)
            return []
        for label, found in product.found:
            graph.problems.append(Problem(number, found.sentence, found.fault, label))
        graph.armed.append(product.armed)
        graph.closed.append(bool(product.found))
        return moves
