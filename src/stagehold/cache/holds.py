"""Who protects which pages: receipts, the climb that counts them, and the totals that admission asks for.

Owns `held` of every node, the same count for pins alone, and the numbers of evictable and pinned pages, right at every
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

_new = tuple.__new__  # what the constructor of a named tuple comes to, without its frame


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


LOCK, PIN, SPAN = Hold  # module names: a member looked up in its class costs as much as a dict look-up
EMPTY = {kind: Receipt(kind, 0, 0) for kind in Hold}
"""The receipts of nothing: they protect no page, cost nothing, and may be given back at any time."""


class Holds:
    """The books of one tree. `evictable` and `pinned` are in pages."""

    __slots__ = ("evictable", "holders", "order", "pinheld", "pinned", "pins", "serial")

    def __init__(self, order: EvictionOrder) -> None:
        self.order = order
        self.evictable = 0
        self.pinned = 0
        self.serial = 0
        self.holders: dict[int, Node] = {}  # by receipt number: the node whose end is its boundary
        self.pins: dict[int, Node] = {}  # those of them that are pins
        self.pinheld: dict[Node, int] = {}  # few nodes are pinned, so the count stands here and not in each node

    def take(self, kind: Hold, node: Node) -> Receipt:
        """Protect the path down to the end of `node`."""
        serial = self.serial = self.serial + 1
        self.holders[serial] = node
        end = node.end
        while not node.held:
            node.held = 1
            node = node.parent
        node.held += 1
        # Runs of a path touch, so the pages newly protected are those behind the first one held before.
        self.evictable -= end - node.end
        receipt: Receipt = _new(Receipt, (kind, serial, end))
        return receipt

    def give(self, receipt: Receipt) -> None:
        """Take a receipt back; refuses one that is not out, and changes nothing then."""
        leaf = node = self.holder(receipt)
        del self.holders[receipt.serial]
        while node.held == 1:
            node.held = 0
            node = node.parent
        node.held -= 1
        self.evictable += receipt.pages - node.end
        if not (leaf.held or leaf.children):
            self.order.offer(leaf)

    def holder(self, receipt: Receipt) -> Node:
        """Return the node whose end is the receipt's boundary; refuses a receipt that is not out."""
        kind, serial, pages = receipt
        node = self.holders.get(serial)
        if node is None or node.end != pages or (serial in self.pins) is not (kind is PIN):
            raise ReceiptRefused(f"{receipt}: it is not out; it was given back before, or is of another tree")
        return node

    def pin(self, node: Node) -> Receipt:
        """Protect the path and charge what no other pin is charged for."""
        receipt = self.take(PIN, node)
        self.pins[receipt.serial] = node
        pinheld = self.pinheld
        while node.end and node not in pinheld:
            pinheld[node] = 1
            node = node.parent
        if node.end:
            pinheld[node] += 1
        self.pinned += receipt.pages - node.end
        return receipt

    def unpin(self, receipt: Receipt) -> None:
        """Take a pin back and discharge what no other pin needs."""
        node = self.holder(receipt)
        self.give(receipt)
        del self.pins[receipt.serial]
        pinheld = self.pinheld
        while node.end and pinheld[node] == 1:
            del pinheld[node]
            node = node.parent
        if node.end:
            pinheld[node] -= 1
        self.pinned -= receipt.pages - node.end

    def split(self, upper: Node, lower: Node) -> None:
        """Give the upper half of a node its counts: the lower half, its only child, holds once or not."""
        upper.children = 1
        upper.held = 1 if lower.held else 0
        if lower in self.pinheld:
            self.pinheld[upper] = 1

    def uncharged(self, node: Node, pages: int) -> int:
        """Pages of the path down to boundary `pages` inside `node` that no pin is charged for."""
        while node.end and node not in self.pinheld:
            node = node.parent
        return max(0, pages - node.end)


def unprotected(node: Node, pages: int) -> int:
    """Pages of the path down to boundary `pages` inside `node` that no hold protects."""
    while not node.held:
        node = node.parent
    return max(0, pages - node.end)
