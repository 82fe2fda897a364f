"""Who protects which pages: receipts, the climb that counts them, and the totals that admission asks for.

Owns `held` and `pinheld` of every node, and the numbers of evictable and pinned pages, right at every
moment. Knows nothing of components or keys. `held` of a node is its own holds plus its children that are
held, so a climb ends at the first ancestor that is held already: it costs the nodes newly protected, not
the depth. Pins climb a second counter, so the charge is a set: two holds over one path pay once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from stagehold.cache.errors import ReceiptRefused
from stagehold.cache.node import Node
from stagehold.cache.recency import EvictionOrder


class Hold(IntEnum):
    """What a receipt is for; each kind is given back by its own call."""

    LOCK = 0  # a request's: every component
    PIN = 1  # an anchor's: FULL only, charged
    SPAN = 2  # a transfer's: every component over the span, not charged


class Receipt(NamedTuple):
    """A hold, named by number and by the boundary (pages from the root) that it protects up to.

    A value and no reference, so that it means the same in a copy of the tree; a tuple, because two are made
    in every admission and a frozen dataclass costs three times as much.
    """

    kind: Hold
    serial: int
    pages: int


EMPTY = {kind: Receipt(kind, 0, 0) for kind in Hold}
"""The receipts of nothing: they protect no page, cost nothing, and may be given back at any time."""


class Holds:
    """The books of one tree. `evictable` and `pinned` are in pages."""

    __slots__ = ("evictable", "holders", "order", "pinned", "serial")

    def __init__(self, order: EvictionOrder) -> None:
        self.order = order
        self.evictable = 0
        self.pinned = 0
        self.serial = 0
        self.holders: dict[int, tuple[Hold, Node]] = {}

    def take(self, kind: Hold, node: Node) -> Receipt:
        """Protect the path down to the end of `node`."""
        serial = self.serial = self.serial + 1
        self.holders[serial] = (kind, node)
        pages = node.end
        if kind is Hold.PIN:
            self._charge(node)
        while True:
            node.held += 1
            if node.held > 1:
                return Receipt(kind, serial, pages)
            self.evictable -= node.end - node.start
            node = node.parent

    def give(self, receipt: Receipt) -> Node:
        """Take a receipt back and return its node; refuses one that is not out, and changes nothing then."""
        leaf = node = self.holder(receipt)
        del self.holders[receipt.serial]
        if receipt.kind is Hold.PIN:
            self._discharge(node)
        while True:
            node.held -= 1
            if node.held:
                break
            self.evictable += node.end - node.start
            node = node.parent
        if not (leaf.held or leaf.children):
            self.order.offer(leaf)
        return leaf

    def holder(self, receipt: Receipt) -> Node:
        """Return the node whose end is the receipt's boundary; refuses a receipt that is not out."""
        found = self.holders.get(receipt.serial)
        if found is None or found[0] is not receipt.kind or found[1].end != receipt.pages:
            raise ReceiptRefused(f"{receipt}: it is not out; it was given back before, or is of another tree")
        return found[1]

    def _charge(self, node: Node) -> None:
        while True:
            node.pinheld += 1
            if node.pinheld > 1:
                return
            self.pinned += node.end - node.start
            node = node.parent

    def _discharge(self, node: Node) -> None:
        while True:
            node.pinheld -= 1
            if node.pinheld:
                return
            self.pinned -= node.end - node.start
            node = node.parent


def split_holds(upper: Node, lower: Node) -> None:
    """Give the upper half of a node its counts: the lower half, its only child, holds once or not."""
    upper.children = 1
    upper.held = 1 if lower.held else 0
    upper.pinheld = 1 if lower.pinheld else 0


def unprotected(node: Node, pages: int) -> int:
    """Pages of the path down to boundary `pages` inside `node` that no hold protects."""
    cost, end = 0, pages
    while not node.held:
        cost += end - node.start
        node = node.parent
        end = node.end
    return cost


def uncharged(node: Node, pages: int) -> int:
    """Pages of the path down to boundary `pages` inside `node` that no pin is charged for."""
    cost, end = 0, pages
    while not node.pinheld:
        cost += end - node.start
        node = node.parent
        end = node.end
    return cost
