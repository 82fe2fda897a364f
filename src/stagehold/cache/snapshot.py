"""Copies and digests of a tree. Owns the walk over all nodes; changes nothing.

A plain deep copy would follow parent and ring links one inside the other and exceed the recursion limit, so
the nodes are copied first, in one loop; whatever else names a node then finds its copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from stagehold.cache.node import NIL, Cell, Node
from stagehold.cache.spine import Spine


def nodes_of(spine: Spine) -> dict[Node, None]:
    """All nodes with pages, in the order in which the index first names them."""
    return dict.fromkeys(spine.index.pages.values())


def heads_of(spine: Spine) -> Iterator[Node]:
    """Nodes without pages: roots and heads of rings."""
    yield from spine.index.roots.values()
    yield from spine.order.heads()
    for part in spine.parts:
        yield part.ring


def copy_nodes(spine: Spine, memo: dict[int, Any]) -> None:
    """Enter a copy of every node into a deep copy's memo, linked among themselves."""
    nodes = [*nodes_of(spine), *heads_of(spine)]
    memo[id(NIL)] = NIL
    for node in nodes:
        memo[id(node)] = Node.__new__(Node)
    for node in nodes:
        twin = memo[id(node)]
        for name in Node.__slots__:
            setattr(twin, name, getattr(node, name))
        twin.slots, twin.keys = list(node.slots), list(node.keys)
        twin.parent, twin.older, twin.newer = (
            memo[id(node.parent)],
            memo[id(node.older)],
            memo[id(node.newer)],
        )
        twin.cells = tuple([copy_cell(cell, memo) for cell in node.cells])


def copy_cell(cell: Cell, memo: dict[int, Any]) -> Cell:
    """Copy a cell with its links led to the copies."""
    twin = Cell()
    twin.slots, twin.locks, twin.own = list(cell.slots), cell.locks, cell.own
    twin.older, twin.newer = memo[id(cell.older)], memo[id(cell.newer)]
    return twin


def copy_spine(spine: Spine, memo: dict[int, Any]) -> Spine:
    """Deep copy of a tree; pools and whatever else it shares with others are shared again in the copy."""
    copy_nodes(spine, memo)
    twin = memo[id(spine)] = object.__new__(type(spine))
    for name, value in vars(spine).items():
        setattr(twin, name, copy.deepcopy(value, memo))
    return twin


def digest(spine: Spine) -> bytes:
    """32 bytes over everything that a later answer of the tree could depend on."""
    told = sha256()
    for node in sorted(nodes_of(spine), key=lambda node: node.keys[0]):
        cells = [(cell.slots, cell.locks, cell.own) for cell in node.cells]
        numbers = (
            node.start,
            node.end,
            node.slots,
            node.children,
            node.held,
            spine.holds.pinheld.get(node, 0),
            node.stamp,
            cells,
        )
        told.update(b"".join(node.keys) + repr(numbers).encode())
    for part in spine.parts:
        told.update(repr([node.stamp for node in part.ring_members()]).encode())
    told.update(spine.order.memory())
    holds = spine.holds
    told.update(repr((spine.nodes, spine.total, holds.evictable, holds.pinned, holds.serial)).encode())
    return told.digest()
