"""What the live tree is made of: nodes, their cells per component, and the rings that order them.

Owns layout and links. Knows no component, no key scheme and no policy. `NIL` stands for "no node", so that
links need no test for None. A node is referenced by the index, by its children and by rings that are cut
when it is removed; so a removed node is in no reference cycle and goes at once, without the garbage
collector.
"""

from __future__ import annotations

NOTHING: list[int] = []
"""The slots of whatever has none: one list for all of them, and never written."""


class Cell:
    """What one component keeps at one node: its slots (empty: tombstone), its locks, its place in a ring.

    `own` of the locks are of holders that have published the slots themselves.
    """

    __slots__ = ("locks", "newer", "older", "own", "slots")

    def __init__(self) -> None:
        self.slots: list[int] = NOTHING
        self.locks = self.own = 0
        self.older: Node = NIL
        self.newer: Node = NIL


class Node:
    """A run of pages [start, end) with one history.

    `keys` are the index entries that name this node; `tokens` the raw tokens where keys cover blocks of
    several pages, else empty; `slots` one slot per page; `children` how many nodes continue this one;
    `held` its own holds and the children with holds; `stamp` what the order of
    eviction knows of it.
    """

    __slots__ = (
        "cells", "children", "end", "held", "keys", "newer", "older", "parent", "slots", "stamp",
        "start", "tokens",
    )  # fmt: skip

    def __init__(self, parent: Node, start: int, end: int, slots: list[int], cells: tuple[Cell, ...] = ()) -> None:
        self.parent = parent
        self.start = start
        self.end = end
        self.slots = slots
        self.cells = cells
        self.keys: list[bytes] = []
        self.tokens = b""
        self.children = self.held = self.stamp = 0
        self.older = self.newer = NIL


NIL = Node.__new__(Node)
"""No node: what a link holds that leads nowhere, and the match of a namespace that was never seen."""
NIL.__init__(NIL, 0, 0, NOTHING)  # type: ignore[misc]


def new_root() -> Node:
    """Return a node of no pages, its own parent, in no ring."""
    root = Node(NIL, 0, 0, NOTHING)
    root.parent = root
    root.held = 2  # for ever: no climb passes a root, going up at 0 or down at 1, and no victim is one
    return root


def new_ring(n_cells: int = 0) -> Node:
    """Return the head of an empty ring; its `newer` is the oldest member and its `older` the newest."""
    head = Node(NIL, 0, 0, NOTHING)
    head.older = head.newer = head
    head.cells = tuple(Cell() for _ in range(n_cells))
    for cell in head.cells:
        cell.older = cell.newer = head
    return head
