"""The deep self-check of a tree: closure, totals, orders, counts, partition.

Slow, complete, and changes nothing.

Every failure names both sides of the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagehold.cache.components.base import Component
from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import SPINE
from stagehold.cache.errors import InvariantBroken
from stagehold.cache.node import NIL, Node
from stagehold.cache.recency import LeafLRU
from stagehold.cache.residency import ON_DEVICE
from stagehold.cache.s3fifo import MAIN, S3Fifo
from stagehold.cache.snapshot import nodes_of
from stagehold.cache.spine import Spine


def equal(what: str, books: Any, count: Any) -> None:
    """Raise InvariantBroken unless the books and a fresh count agree."""
    if books != count:
        raise InvariantBroken(f"tree: {what}: the books say {books}, a count says {count}")


def check(spine: Spine) -> None:
    """Check everything about a tree that can be counted again."""
    nodes = list(nodes_of(spine))
    check_closure(spine, nodes)
    check_counts(spine, nodes)
    check_order(spine, nodes)
    for part in spine.parts:
        check_part(part, nodes)
    check_slots(spine, nodes)
    if spine.moves is not None:
        check_moves(spine, nodes)


def check_closure(spine: Spine, nodes: Sequence[Node]) -> None:
    """Every node hangs under a living one, starts where that ends, and is what the index says."""
    index, living = spine.index, {*nodes, *index_roots(spine)}
    for node in nodes:
        place = f"pages {node.start} to {node.end}"
        equal(f"{place}: parent lives", node.parent in living, True)
        equal(f"{place}: start is the parent's end", node.start, node.parent.end)
        equal(f"{place}: no page is left out", len(node.slots), node.end - node.start)
        equal(f"{place}: keys", len(node.keys), index.keys_before(node.start, node.end))
        equal(f"{place}: index", {index.pages.get(key) is node for key in node.keys}, {True})
        if index.block_pages > 1:
            need = (node.end - node.start) * index.page_bytes
            equal(f"{place}: token bytes", need <= len(node.tokens) <= 2 * need, True)
    equal("index entries", len(index.pages), sum(len(node.keys) for node in nodes))
    equal("roots with children", sum(1 for root in index_roots(spine) if root.children), len(index.roots))


def index_roots(spine: Spine) -> list[Node]:
    """Return the roots of all namespaces."""
    return list(spine.index.roots.values())


def check_counts(spine: Spine, nodes: Sequence[Node]) -> None:
    """Children, holds, pins and the totals that follow from them."""
    children = dict.fromkeys([*nodes, *index_roots(spine)], 0)
    own, pins = dict.fromkeys(children, 0), dict.fromkeys(children, 0)
    pinheld = spine.holds.pinheld
    for node in spine.holds.holders.values():
        own[node] += 1
    for node in spine.holds.pins.values():
        pins[node] += 1
    for node in nodes:
        children[node.parent] += 1
        own[node.parent] += 1 if node.held else 0
        pins[node.parent] += 1 if node in pinheld else 0
    for node in nodes:
        place = f"pages {node.start} to {node.end}"
        equal(f"{place}: children", node.children, children[node])
        equal(f"{place}: held", node.held, own[node])
        equal(f"{place}: pinheld", pinheld.get(node, 0), pins[node])
    equal("nodes", spine.nodes, len(nodes))
    equal("total", spine.total, sum(node.end - node.start for node in nodes))
    equal("evictable", spine.holds.evictable, sum(node.end - node.start for node in nodes if not node.held))
    equal("pinned", spine.holds.pinned, sum(node.end - node.start for node in pinheld))


def check_order(spine: Spine, nodes: Sequence[Node]) -> None:
    """What the order of removals keeps agrees with the nodes."""
    order = spine.order
    if isinstance(order, S3Fifo):
        check_queues(order, nodes)
    elif isinstance(order, LeafLRU):
        check_ring(order, nodes)


def check_ring(order: LeafLRU, nodes: Sequence[Node]) -> None:
    """The ring is sorted, nothing dead is in it, and every leaf without holds is offered."""
    ring = order.members()
    stamps = [node.stamp for node in ring]
    equal("ring in stamp order", stamps, sorted(stamps))
    equal("ring holds living nodes", [node for node in ring if node not in set(nodes)], [])
    equal("no parent in the ring", [node for node in ring if node.children], [])
    offered = {*ring, *(node for stamp, node in order.late.items() if node.stamp == stamp)}
    missed = [(node.start, node.end) for node in nodes if not (node.held or node.children or node in offered)]
    equal("leaves without holds that are not offered", missed, [])
    equal("late stamps on the heap", set(order.late) <= set(order.heap), True)


def check_queues(order: S3Fifo, nodes: Sequence[Node]) -> None:
    """Small's pages, main closed towards the root, every leaf without holds offered, and the ghost within its bound."""
    small = [node for node in nodes if not node.stamp & MAIN]
    equal("pages of small", order.small_pages, sum(node.end - node.start for node in small))
    equal(
        "main below small", [n.start for n in nodes if n.stamp & MAIN and n.parent.end and n.parent in set(small)], []
    )
    equal("lives in small", [node.start for node in small if node.stamp % MAIN], [])
    offered = order.offered()
    equal("queues hold living nodes", [node for node in offered if node not in set(nodes)], [])
    missed = [(node.start, node.end) for node in nodes if not (node.held or node.children or node in offered)]
    equal("leaves without holds that are not offered", missed, [])
    equal("keys of the ghost", len(order.ghost()) <= order.ghost_keys, True)


def check_part(part: Component, nodes: Sequence[Node]) -> None:
    """A component's ring, locks and evictable slots."""
    at = part.at
    members = part.ring_members()
    free = [node for node in nodes if node.cells[at].slots and not node.cells[at].locks]
    equal(f"{part.name}: ring", set(members), set(free))
    equal(f"{part.name}: ring length", len(members), len(free))
    equal(f"{part.name}: evictable", part.evictable, sum(len(node.cells[at].slots) for node in free))
    locks, own, doubled = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0), 0
    for serial, (bottom, start) in part.holders.items():
        for node in nodes_between(bottom, start):
            locks[node] += 1
            own[node] += serial in part.owners and node.start >= part.owners[serial]
    for node in nodes:
        place = f"{part.name} of pages {node.start} to {node.end}"
        equal(f"{place}: locks", node.cells[at].locks, locks[node])
        equal(f"{place}: locks of those who published it", node.cells[at].own, own[node])
        doubled += len(node.cells[at].slots) * max(0, min(own[node], locks[node] - 1))
        whole = node.end - node.start if part.per_page else 1
        equal(f"{place}: slots", len(node.cells[at].slots) in (0, whole), True)
    equal(f"{part.name}: slots counted on twice", part.doubled, doubled)
    part.check(nodes)


def owned_slots(spine: Spine, component: str) -> list[int]:
    """All slots of a component that the tree owns."""
    if component == SPINE:
        return [slot for node in nodes_of(spine) for slot in node.slots]
    at = spine.part(component).at
    return [slot for node in nodes_of(spine) for slot in node.cells[at].slots]


def check_slots(spine: Spine, nodes: Sequence[Node]) -> None:
    """Every slot of the tree is out of its pool, and in the tree once."""
    assert NIL not in nodes
    for name, pool in spine.pools.items():
        slots = owned_slots(spine, name)
        equal(f"{name}: slots named once", len(slots), len(set(slots)))
        equal(f"{name}: slots that the pool calls free", [slot for slot in slots if not pool.is_out(slot)], [])


def check_moves(spine: Spine, nodes: Sequence[Node]) -> None:
    """Residency by the rows agrees with what the nodes hold."""
    moves = spine.moves
    assert moves is not None
    equal("pages that residency names", [len(keys) for keys in moves.keys.values()],
          [len(node.slots) for node in moves.keys])  # fmt: skip
    equal("nodes that residency knows", set(moves.keys), set(nodes))
    moves.book.check("on the device", SPINE, {key for node in nodes for key in moves.keys[node]}, ON_DEVICE)
    for part in spine.parts:
        have = [node for node in nodes if node.cells[part.at].slots]
        keys = {key for node in have for key in moves.keys[node][0 if part.per_page else -1 :]}
        moves.book.check("on the device", part.name, keys, ON_DEVICE)
