"""Which leaf goes first: S3-FIFO, so that what is used once does not drive out what is used again.

The idea is that of J. Yang, Y. Zhang, Z. Qiu, Y. Yue and K. V. Rashmi, "FIFO Queues are All You Need for Cache
Eviction", SOSP 2023: a small queue for what is new, a main queue for what was used again, and a ghost, which remembers
names alone of what left the small queue unused. Owns the two queues, the ghost and the clock that numbers places.

A tree is no queue: only leaves can go, and a use of a leaf is a use of its whole path. Hence three changes.

- A node is promoted when it is used, with all nodes above it, and not when its turn to go has come: inner nodes have
  no turn. So main is closed towards the root, and a leaf of small is always a twig that nobody has come back to.
- Small is over its share when the pages of all its nodes are, leaves or not, held or not.
- A node has as many lives in main as uses have ended at it. Its place in a queue is the last one of its own or of those
  below that have gone.

Queues hold nodes, the ghost names pages: a run that comes back is rarely cut where it was cut before. What comes back
begins in main if the ghost knows more than half of its keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush

from stagehold.cache.node import Node

SMALL_SHARE = 10
"""A tenth of the pool is small's, as in the paper."""

MOST_LIVES = 3
"""Two bits, as in the paper."""

MAIN = 4
PLACE = 8
"""A stamp is place x 8 + 4 in main + lives: one number per node, and the digest of a tree has it already."""


class _Queue:
    """Leaves by place, the lowest first. A place on the heap names one leaf, or nothing any more."""

    __slots__ = ("heap", "leaves")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.leaves: dict[int, Node] = {}

    def enter(self, leaf: Node) -> None:
        place = leaf.stamp // PLACE
        if place in self.leaves:
            return
        if len(self.heap) > 2 * len(self.leaves) + 64:
            self.heap = list(self.leaves)
            heapify(self.heap)
        self.leaves[place] = leaf
        heappush(self.heap, place)

    def leave(self, node: Node) -> None:
        place = node.stamp // PLACE
        if self.leaves.get(place) is node:
            del self.leaves[place]

    def first(self) -> Node | None:
        """The leaf without holds with the lowest place; what is no such leaf any more is dropped on the way."""
        heap, leaves = self.heap, self.leaves
        while heap:
            leaf = leaves.get(heap[0])
            if leaf is not None and not leaf.held and not leaf.children:
                return leaf
            leaves.pop(heappop(heap), None)
        return None

    def free(self) -> list[Node]:
        return [self.leaves[place] for place in sorted(self.leaves)
                if not (self.leaves[place].held or self.leaves[place].children)]  # fmt: skip


class S3Fifo:
    """See `EvictionOrder`. `capacity` is the pool in pages; the ghost remembers as many keys as main has pages."""

    __slots__ = ("_clock", "_ghost", "_main", "_share", "_small", "ghost_keys", "small_pages")

    def __init__(self, capacity: int) -> None:
        self._share = max(1, capacity // SMALL_SHARE)
        self.ghost_keys = capacity - self._share
        self._ghost: OrderedDict[bytes, None] = OrderedDict()
        self._small, self._main = _Queue(), _Queue()
        self._clock = 0
        self.small_pages = 0

    def _next(self) -> int:
        self._clock += 1
        return self._clock * PLACE

    # -- what happens in the tree ------------------------------------------------------------------------------

    def born(self, node: Node) -> None:
        """A new leaf begins in small; in main, if the ghost remembers most of it."""
        known = [key for key in node.keys if key in self._ghost]
        for key in known:
            del self._ghost[key]
        node.stamp = self._next()
        self.small_pages += node.end - node.start
        if 2 * len(known) > len(node.keys):
            self._promote(node)
        else:
            self._small.enter(node)

    def used(self, node: Node) -> None:
        """The second use leads to main, every further one is worth a life."""
        if not node.stamp & MAIN:
            self._promote(node)
        elif node.stamp % MAIN < MOST_LIVES:
            node.stamp += 1

    def _promote(self, node: Node) -> None:
        """The node gets a place in main; those above it have none of their own while they are no leaves."""
        self._small.leave(node)
        node.stamp = self._next()
        if not node.children:
            self._main.enter(node)  # by its place, which the mark does not change
        while node.end and not node.stamp & MAIN:
            node.stamp += MAIN
            self.small_pages -= node.end - node.start
            node = node.parent

    def covered(self, parent: Node) -> None:
        """Take a parent out: its child goes first."""
        self._of(parent).leave(parent)

    def split(self, upper: Node, lower: Node) -> None:
        """Both are in the same queue; the upper one has no place as long as it has a child."""
        upper.stamp = lower.stamp & MAIN

    def offer(self, leaf: Node) -> None:
        """Enter a leaf at its old place."""
        self._of(leaf).enter(leaf)

    def _of(self, node: Node) -> _Queue:
        return self._main if node.stamp & MAIN else self._small

    def shortened(self, leaf: Node, pages: int, keys: Sequence[bytes]) -> None:
        """The ghost remembers what a leaf of small has lost."""
        if not leaf.stamp & MAIN:
            self.small_pages -= pages
            self._remember(keys)

    def removed(self, node: Node, parent: Node) -> None:
        """The parent inherits the place, lives are spent by then; the ghost remembers what was in small."""
        self._of(node).leave(node)
        if not node.stamp & MAIN:
            self.small_pages -= node.end - node.start
            self._remember(node.keys)
        place = max(node.stamp // PLACE, parent.stamp // PLACE)
        parent.stamp = place * PLACE + parent.stamp % PLACE

    def _remember(self, keys: Sequence[bytes]) -> None:
        """The end of a run is forgotten first, since it is of no use without its head."""
        for key in reversed(keys):
            self._ghost[key] = None
            self._ghost.move_to_end(key)
        while len(self._ghost) > self.ghost_keys:
            self._ghost.popitem(last=False)

    # -- who goes ----------------------------------------------------------------------------------------------

    def victim(self) -> Node | None:
        """The first of small while small is over its share, else the first of main that has no life left."""
        leaf = self._small.first()
        if leaf is not None and self.small_pages > self._share:
            return leaf
        return self._spent() or leaf

    def _spent(self) -> Node | None:
        """Each that has a life left pays with it for a new place; there are three at most, so this ends."""
        while (leaf := self._main.first()) is not None and leaf.stamp % MAIN:
            self._main.leave(leaf)
            leaf.stamp = self._next() + MAIN + leaf.stamp % MAIN - 1
            self._main.enter(leaf)
        return leaf

    def coming(self) -> Iterator[Node]:
        """Small down to its share, then main by lives and place, then what is left of small."""
        small, over = self._small.free(), self.small_pages - self._share
        first = 0
        while first < len(small) and over > 0:
            over -= small[first].end - small[first].start
            first += 1
        yield from small[:first]
        yield from sorted(self._main.free(), key=lambda leaf: leaf.stamp % MAIN)  # stable: by place among equals
        yield from small[first:]

    # -- looking in --------------------------------------------------------------------------------------------

    def heads(self) -> tuple[Node, ...]:
        """See the protocol: no link leads here."""
        return ()

    def memory(self) -> bytes:
        """See the protocol: the clock, and what the ghost remembers, in order."""
        told = sha256(repr((self._clock, self.small_pages)).encode())
        for key in self._ghost:
            told.update(key)
        return told.digest()

    def ghost(self) -> list[bytes]:
        """The keys that are remembered, the first to be forgotten first."""
        return list(self._ghost)

    def offered(self) -> set[Node]:
        """The leaves that stand in a queue of theirs."""
        return {
            leaf for queue in (self._small, self._main) for leaf in queue.leaves.values() if self._of(leaf) is queue
        }
