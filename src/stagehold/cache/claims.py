"""Which nodes a load in flight is filling: no second load fills them, it joins the first or recomputes.

Owns the map from node to load. A claimed node cannot go: the load's span is held by its receipt.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.cache.node import Node


class Claims:
    """Loads in flight, by the serial number of the receipt that holds their span."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: dict[Node, int] = {}

    def over(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        """Loads that claim one of the nodes, oldest first."""
        return tuple(sorted({self.nodes[node] for node in nodes if node in self.nodes}))

    def take(self, serial: int, nodes: Sequence[Node]) -> None:
        """Claim nodes that no load has claimed."""
        assert not self.over(nodes), f"load {serial} claims what loads {self.over(nodes)} bring"
        for node in nodes:
            self.nodes[node] = serial

    def split(self, upper: Node, lower: Node) -> None:
        """Let both halves of a claimed node belong to its load."""
        serial = self.nodes.get(lower)
        if serial is not None:
            self.nodes[upper] = serial

    def drop(self, serial: int) -> None:
        """End the claims of a load."""
        for node in [node for node, owner in self.nodes.items() if owner == serial]:
            del self.nodes[node]
