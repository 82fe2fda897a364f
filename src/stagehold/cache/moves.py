"""What a checked tree tells the book of residency: which pages each node has, and what happens to them.

Owns the page keys of every node, which the tree itself needs for whole blocks only. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stagehold.cache.components.full import SPINE
from stagehold.cache.keys import Chain
from stagehold.cache.node import Node
from stagehold.cache.residency import Residency


class Kind(Protocol):
    """What it needs to know of a component: slots for each page of a node, or one for its end."""

    name: str
    per_page: bool


class Moves:
    """`keys` of each node, in page order, and the `book` that hears of them."""

    __slots__ = ("book", "keys")

    def __init__(self, book: Residency) -> None:
        self.book = book
        self.keys: dict[Node, list[bytes]] = {}

    def born(self, node: Node, chain: Chain, brought: Sequence[tuple[Kind, bool]]) -> None:
        """A node was made; `brought` says of each other component whether it has slots there."""
        keys = self.keys[node] = [chain.page_key(page) for page in range(node.start, node.end)]
        self.book.entered(keys, SPINE, bare=False)
        for part, slots in brought:
            bare = keys if not slots else () if part.per_page else keys[:-1]
            self.book.entered(bare, part.name, bare=True)
            self.book.entered(keys[len(bare) :], part.name, bare=False)

    def divided(self, upper: Node, lower: Node) -> None:
        """A node was cut in two: no page has moved."""
        keys, size = self.keys[lower], upper.end - upper.start
        self.keys[upper], self.keys[lower] = keys[:size], keys[size:]

    def filled(self, node: Node, part: Kind) -> None:
        """A component has slots at a node where it had none."""
        self.book.entered(self._places(node, part), part.name, bare=False)

    def emptied(self, node: Node, part: Kind) -> None:
        """A component has none any more, the node stays."""
        self.book.emptied(self._places(node, part), part.name)

    def _places(self, node: Node, part: Kind) -> list[bytes]:
        return self.keys[node] if part.per_page else self.keys[node][-1:]

    def removed(self, node: Node, keep: int, others: Sequence[str], *, evicted: bool) -> None:
        """All but the first `keep` pages of a node went, from the last on."""
        keys = self.keys[node]
        self.book.left(reversed(keys[keep:]), others, evicted=evicted)
        if keep:
            del keys[keep:]
        else:
            del self.keys[node]
