"""STATE: recurrent state, one checkpoint slot for the end of a node, or none.

Owns when a boundary has its checkpoint. A checkpoint is never computed in: whoever goes on from it copies
it to a slot of its own first, so that it serves the next request too.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.cache.components.base import Component, Splice
from stagehold.cache.components.shares import StateShare
from stagehold.cache.node import Node

STATE = "state"


class Checkpoints(Component):
    """Checkpoints at node ends. Going on from one takes a copy, hence one slot of the request's own."""

    splice = Splice.CHECKPOINT
    per_page = False
    copies_on_use = True
    priority = 0

    def __init__(self, *, gates: bool = True, name: str = STATE) -> None:
        super().__init__(gates=gates)
        self.name = name

    def reach(self, end: int) -> int:
        """Only the boundary itself: the page before it stands for it."""
        return end - 1 if end else 0

    def touch(self, node: Node) -> None:
        """Count a use of the checkpoint at the end of `node`, if there is one."""
        cell = node.cells[self.at]
        if cell.newer is not self.ring and cell.slots and not cell.locks:
            self._place_before(self.ring, node)

    def retreat(self, node: Node, at: int) -> tuple[Node, int]:
        """Go to the node's start unless its end is the boundary and has a checkpoint."""
        if not at or (at == node.end and node.cells[self.at].slots):
            return node, at
        return node.parent, node.start

    def vacate(self, node: Node) -> None:
        """Free the checkpoint; the node stays, since its pages serve a match that ends further up or down."""
        self.bare(node)

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Return one slot, whatever the hold's anchor and length: a state has one size."""
        assert min(anchor, suffix) >= 0
        return 1

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Return one slot that a request computes in."""
        assert min(extend, new, chunk) >= 0
        return 1

    def share(self, hit: int, shown: Sequence[int]) -> StateShare:
        """See the base class."""
        return StateShare(hit, shown)
