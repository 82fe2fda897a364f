"""Which leaf goes first: least recent use, leaves before their parents, exact and in constant time.

Owns the order of removal and the clock behind it, a counter of uses. Never removes anything itself.

A match uses every page of its path, so the last use of a node is the greatest stamp at or below it. Only
`stamp` = last match that *ended* here is stored; when a child goes, its parent takes the greater of both
stamps. For a leaf the two are the same, and only leaves are victims. Candidates stand in a ring in stamp
order, and what becomes a candidate late (a parent that lost its last child, a leaf unlocked after the ring
had passed it) in a heap beside it. The victim is the smaller stamp of both heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from typing import Protocol

from stagehold.cache.node import NIL, Node, new_ring


class EvictionOrder(Protocol):
    """The seam. Whatever orders removals must offer every leaf without holds, and nothing else.

    `stamp` of a node is the order's to write, and means what the order says. Its answers follow from the calls alone,
    so that ranks that make the same calls evict the same pages.
    """

    def born(self, node: Node) -> None:
        """Note a new leaf, which was computed or fetched just now."""

    def used(self, node: Node) -> None:
        """Note that a use ended at `node` just now."""

    def split(self, upper: Node, lower: Node) -> None:
        """Note that `upper` is what was the upper part of `lower`: the pages of both have one history."""

    def covered(self, parent: Node) -> None:
        """Note that `parent` got a child, so that it is no candidate."""

    def offer(self, leaf: Node) -> None:
        """Note that a leaf without holds may have to be offered again."""

    def shortened(self, leaf: Node, pages: int, keys: Sequence[bytes]) -> None:
        """Note that a leaf has lost its last pages, and the keys that named them."""

    def removed(self, node: Node, parent: Node) -> None:
        """Note that `node` is gone; what it knew of uses passes to `parent`."""

    def victim(self) -> Node | None:
        """Return the leaf without holds that goes first, or None; it stays until it is removed."""

    def coming(self) -> Iterator[Node]:
        """Give the leaves without holds in the order in which they would go; nothing may change meanwhile."""

    def heads(self) -> tuple[Node, ...]:
        """Nodes without pages that links of others lead to: a copy of the tree copies them, too."""

    def memory(self) -> bytes:
        """What a later answer depends on beside the stamps, for the digest of the tree."""


class LeafLRU:
    """Least recently used leaf first."""

    __slots__ = ("clock", "heap", "late", "ring")

    def __init__(self) -> None:
        self.clock = 0
        self.ring = new_ring()
        self.heap: list[int] = []  # stamps; a stamp names one node of `late`, or nothing any more
        self.late: dict[int, Node] = {}

    def used(self, node: Node) -> None:
        """Give the node the newest stamp and, if it is a leaf, the newest place."""
        if self.late and self.late.get(node.stamp) is node:
            del self.late[node.stamp]
        self.clock = node.stamp = self.clock + 1
        if node.children:
            return
        older = node.older
        if older is not NIL:
            older.newer, node.newer.older = node.newer, older
        ring = self.ring
        last = ring.older
        node.older, node.newer = last, ring
        last.newer = ring.older = node

    born = used

    def split(self, upper: Node, lower: Node) -> None:
        """Leave both: the stamp of the lower one counts for the upper one as long as it is there."""

    def shortened(self, leaf: Node, pages: int, keys: Sequence[bytes]) -> None:
        """Leave it where it is."""

    def covered(self, parent: Node) -> None:
        """Take a parent out: its child goes first."""
        self._unlink(parent)

    def _unlink(self, node: Node) -> None:
        older = node.older
        if older is not NIL:
            older.newer, node.newer.older = node.newer, older
            node.older = node.newer = NIL
        elif self.late and self.late.get(node.stamp) is node:
            del self.late[node.stamp]

    def offer(self, leaf: Node) -> None:
        """Put a leaf on the heap unless the order has it already."""
        if leaf.older is not NIL or self.late.get(leaf.stamp) is leaf:
            return
        if len(self.heap) > 2 * len(self.late) + 64:
            # Stamps that name nothing any more are dropped together, so the heap stays as small as the tree.
            self.heap = list(self.late)
            heapify(self.heap)
        self.late[leaf.stamp] = leaf
        heappush(self.heap, leaf.stamp)

    def removed(self, node: Node, parent: Node) -> None:
        """Cut the node out and raise the parent's stamp."""
        self._unlink(node)
        parent.stamp = max(parent.stamp, node.stamp)

    def heads(self) -> tuple[Node, ...]:
        """See the protocol."""
        return (self.ring,)

    def memory(self) -> bytes:
        """See the protocol: the stamps say it all."""
        return b""

    def members(self) -> list[Node]:
        """Nodes in the ring, oldest first."""
        found, node = [], self.ring.newer
        while node is not self.ring:
            found.append(node)
            node = node.newer
        return found

    def coming(self) -> Iterator[Node]:
        """Both heads merged; what stands late is few, and is sorted for it."""
        late = sorted(self.late.values(), key=lambda node: node.stamp)
        return (node for node in merge(self._ringed(), late, key=lambda node: node.stamp)
                if not (node.held or node.children))  # fmt: skip

    def _ringed(self) -> Iterator[Node]:
        node = self.ring.newer
        while node is not self.ring:
            yield node
            node = node.newer

    def victim(self) -> Node | None:
        """Smaller stamp of ring head and heap top; both are tested when they are looked at."""
        ring = self.ring
        head = ring.newer
        while head is not ring and (head.held or head.children):
            self._unlink(head)
            head = ring.newer
        late = self._late_head()
        if late is None:
            return None if head is ring else head
        return late if head is ring or late.stamp < head.stamp else head

    def _late_head(self) -> Node | None:
        heap, late = self.heap, self.late
        while heap:
            node = late.get(heap[0])
            if node is not None and not node.held and not node.children:
                return node
            if node is not None:
                del late[node.stamp]
            heappop(heap)
        return None
