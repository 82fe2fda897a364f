"""Which leaf goes first for somebody who knows the future: the bound that a real order is measured against.

The rule is that of L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966: what is used
again farthest in the future goes first. Owns the leaves by their next use; what that is, it asks. A page on the way to
another is used no later than that one, so the rule takes leaves before their parents by itself. Of a leaf its last page
is asked for, and the whole of it goes with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from stagehold.cache.node import Node

Foresight = Callable[[bytes], int]
"""When the page of a key is used next: any number that grows with time, and `NEVER`. It may only come later."""

NEVER = 1 << 62


class Foreseen:
    """See `EvictionOrder`. Among leaves that are never used again the one goes first that was used least recently."""

    __slots__ = ("_clock", "_heap", "_leaves", "_next_use")

    def __init__(self, next_use: Foresight) -> None:
        self._next_use = next_use
        self._clock = 0
        self._heap: list[tuple[int, int]] = []  # (minus the next use, stamp)
        self._leaves: dict[int, tuple[int, Node]] = {}  # by stamp: minus the next use as it was entered, and the leaf

    def __deepcopy__(self, memo: dict[int, Any]) -> Foreseen:
        """A copy shares the future."""
        twin = memo[id(self)] = Foreseen(self._next_use)
        twin._clock, twin._heap = self._clock, list(self._heap)
        twin._leaves = {stamp: (minus, memo[id(leaf)]) for stamp, (minus, leaf) in self._leaves.items()}
        return twin

    def used(self, node: Node) -> None:
        """Its next use is another one now."""
        self._leave(node)
        self._clock = node.stamp = self._clock + 1
        if not node.children:
            self.offer(node)

    born = used

    def covered(self, parent: Node) -> None:
        """Take a parent out: its child goes first."""
        self._leave(parent)

    def _leave(self, node: Node) -> None:
        if node.stamp in self._leaves and self._leaves[node.stamp][1] is node:
            del self._leaves[node.stamp]

    def split(self, upper: Node, lower: Node) -> None:
        """The upper part is no leaf, and the lower one ends where it did."""

    def shortened(self, leaf: Node, pages: int, keys: Sequence[bytes]) -> None:  # noqa: ARG002 - the leaf says it all
        """It ends with another page now."""
        self.offer(leaf)

    def offer(self, leaf: Node) -> None:
        """Enter a leaf, or enter it anew."""
        minus = -self._next_use(leaf.keys[-1])
        if self._leaves.get(leaf.stamp) != (minus, leaf):
            self._leaves[leaf.stamp] = (minus, leaf)
            heappush(self._heap, (minus, leaf.stamp))

    def removed(self, node: Node, parent: Node) -> None:
        """The parent was used when the node was."""
        self._leave(node)
        parent.stamp = max(parent.stamp, node.stamp)

    def victim(self) -> Node | None:
        """The leaf without holds whose next use is farthest."""
        while self._heap:
            minus, stamp = self._heap[0]
            entered, leaf = self._leaves.get(stamp, (0, None))
            if leaf is not None and entered == minus:
                if not leaf.held and not leaf.children:
                    return leaf
                del self._leaves[stamp]
            heappop(self._heap)
        return None

    def coming(self) -> Iterator[Node]:
        """By next use, the farthest first."""
        found = sorted((minus, stamp) for stamp, (minus, _) in self._leaves.items())
        leaves = (self._leaves[stamp][1] for _, stamp in found)
        return (leaf for leaf in leaves if not (leaf.held or leaf.children))

    def heads(self) -> tuple[Node, ...]:
        """See the protocol: no link leads here."""
        return ()

    def memory(self) -> bytes:
        """See the protocol: what the future holds is not the tree's."""
        return str(self._clock).encode()
