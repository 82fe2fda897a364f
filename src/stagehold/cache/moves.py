"""Residency as declared: in checked mode every move of a (node, component) is looked up in the rows.

Owns a shadow of where everything lives, and the sentence that a move without a row raises. Steps nothing:
the tree moves, this watches.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.cache.errors import InvariantBroken
from stagehold.cache.node import Node
from stagehold.specs.outcomes import Birth, Evict
from stagehold.specs.residency import RESIDENCY, ResidencyState

_MOVES = RESIDENCY.legal_moves()


class Moves:
    """Where each component of each node lives, by the rows."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[tuple[Node, str], ResidencyState] = {}

    def born(self, node: Node, component: str, *, bare: bool) -> None:
        """Note a birth, with slots or without."""
        if (node, component) in self.places:
            raise InvariantBroken(f"residency: {component} of pages {node.start} to {node.end} is born twice")
        self.places[node, component] = ResidencyState.UNBORN
        self.step(node, component, "birth", Birth.BARE if bare else Birth.COMPUTED)

    def divided(self, upper: Node, lower: Node, component: str, *, bare: bool) -> None:
        """Note that a node was cut in two: the upper half lives where the lower one does, or is bare."""
        self.places[upper, component] = ResidencyState.TOMBSTONE if bare else self.places[lower, component]

    def step(self, node: Node, component: str, event: str, outcome: IntEnum | None = None) -> None:
        """Move along the row for the event; raises InvariantBroken if there is none."""
        place = self.places.get((node, component), ResidencyState.GONE)
        target = _MOVES.get((place, event, outcome))
        if target is None:
            name = f"{event} {outcome.name}" if outcome is not None else event
            pages = f"{component} of pages {node.start} to {node.end}"
            raise InvariantBroken(f"residency: no row for {name} in {place.name.lower()} ({pages})")
        if target is ResidencyState.GONE:
            del self.places[node, component]
        else:
            self.places[node, component] = ResidencyState(target)

    def emptied(self, node: Node, component: str) -> None:
        """Note that a component's slots went while the node stays."""
        self.step(node, component, "evict", Evict.TOMBSTONE)

    def removed(self, node: Node, spine: str, others: tuple[str, ...], *, evicted: bool) -> None:
        """Note that a node went, with everything at it."""
        self.step(node, spine, *(("evict", Evict.DELETE) if evicted else ("delete",)))
        for component in others:
            self.step(node, component, "delete")
