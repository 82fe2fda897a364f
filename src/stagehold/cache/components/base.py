"""The protocol by which the tree, the lifecycle and admission speak to a kind of KV, without its name.

Owns the base class of all components beside the one that carries the tree, and what they share: cells, a
recency ring of what may be evicted, locks by receipt number, holes and their filling. Never changes the
structure of the tree: what it needs of it, it asks the `Host` for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from stagehold.cache.errors import AttachRefused, DeadReceipt, SpanRefused
from stagehold.cache.node import NIL, Node, new_ring
from stagehold.cache.pools import Pool


class Splice(Enum):
    """How much of a fetched span of a component can be joined to a live prefix."""

    TRIMMABLE = "trimmable"  # any tail of it
    WHOLE = "whole"  # the window as a whole, or nothing
    CHECKPOINT = "checkpoint"  # the one slot at its end, or nothing


class Span(NamedTuple):
    """Pages [start, end) of a path."""

    start: int
    end: int


class Cut(NamedTuple):
    """A node boundary that a change made at `page` of a path: queued writes and pins over it follow."""

    page: int


class Host(Protocol):
    """What a component may ask of the tree that it belongs to."""

    def delete_leaf(self, node: Node) -> None:
        """Remove a leaf without holds, with all that any component keeps there."""

    def bared(self, component: str, node: Node) -> None:
        """Note that the component's slots at the node are about to go while the node stays."""

    def filled(self, component: str, node: Node) -> None:
        """Note that the component's slots have come to a node that had none."""


class Component:
    """One kind of KV beside the one that carries the tree.

    `gates`: whether a match must end where this component can go on. `per_page`: one slot for each page of a
    node, or one for its end. `rebuilds`: whether its slots are reached through those of the spine, so that
    filling a hole from newly computed pages takes the new spine slots as well. A subclass declares these
    and says which boundaries are valid, how far a use reaches and what a node without it becomes.
    """

    name: str
    splice: Splice
    per_page: bool
    priority: int
    rebuilds: bool = False
    copies_on_use: bool = False

    def __init__(self, *, gates: bool = True) -> None:
        self.gates = gates
        self.at = 0
        self.evictable = 0
        self.holders: dict[int, tuple[Node, int]] = {}
        self.dead: set[int] = set()
        self.ring = NIL
        self.pool: Pool
        self.host: Host

    def bind(self, at: int, pool: Pool, host: Host) -> None:
        """Take place number `at` in the cells of every node, and the pool that the slots are of."""
        self.at, self.pool, self.host = at, pool, host
        self.ring = new_ring(at + 1)

    # -- what a subclass says ------------------------------------------------------------------------------

    def retreat(self, node: Node, at: int) -> tuple[Node, int]:
        """Return (node, at) if boundary `at` inside `node` is valid, else a lower candidate.

        No boundary between the two is valid; the candidate itself need not be. Boundary 0 always is.
        """
        raise NotImplementedError

    def reach(self, end: int) -> int:
        """First page that a use ending at boundary `end` touches and a lock protects."""
        raise NotImplementedError

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Staging units that a hold of `suffix` pages behind `anchor` live pages needs of this component."""
        raise NotImplementedError

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Slots that a request reserves: it computes `extend` pages in chunks, then grows by `new`."""
        raise NotImplementedError

    def fits(self, need: int, room: int) -> bool:
        """Whether a need fits into `room` free and evictable slots, of which one stays free."""
        return need < room

    # -- holes ---------------------------------------------------------------------------------------------

    def holes(self, node: Node, start: int, end: int) -> list[Span]:
        """Return the maximal merged spans of [start, end) without slots, in page order.

        `node` holds page end - 1 or lies below it. A checkpoint's only hole is the page before boundary
        `end`.
        """
        if not self.per_page:
            have = node.end == end and node.cells[self.at].slots
            return [] if have or start >= end else [Span(end - 1, end)]
        spans: list[Span] = []
        while node.end > start:
            low, high = max(start, node.start), min(end, node.end)
            if not node.cells[self.at].slots and low < high:
                if spans and spans[-1].start == high:
                    high = spans.pop().end
                spans.append(Span(low, high))
            node = node.parent
        spans.reverse()
        return spans

    def missing(self, node: Node, live: int, span: Span) -> list[Span]:
        """Return what of a span the component lacks; `live` pages are live, the last one in `node`."""
        start, end = span
        if not self.per_page:
            return [Span(end - 1, end)] if live < end and start < end else self.holes(node, start, end)
        spans = self.holes(node, start, min(live, end))
        behind = max(live, start)
        if behind < end:
            if spans and spans[-1].end == behind:
                behind = spans.pop().start
            spans.append(Span(behind, end))
        return spans

    def slots(self, node: Node, start: int, end: int) -> list[int]:
        """Return the slots of pages [start, end), or of boundary `end`; refuses a span with a hole."""
        holes = self.holes(node, start, end)
        if holes:
            raise SpanRefused(f"{self.name}: pages {start} to {end} lack {holes}")
        if not self.per_page:
            return list(node.cells[self.at].slots)
        found: list[int] = []
        for part in nodes_between(node, start):
            found += part.cells[self.at].slots[max(0, start - part.start) : end - part.start]
        return found

    def edges(self, span: Span) -> tuple[int, ...]:
        """Return the pages at which nodes must end so that slots for the span fit whole nodes."""
        return tuple(span) if self.per_page else (span.end,)

    def units(self, spans: Sequence[Span]) -> int:
        """Return how many slots fill the spans."""
        return sum(span.end - span.start for span in spans) if self.per_page else len(spans)

    def admit(self, node: Node, end: int, spans: Sequence[Span], slots: Sequence[int]) -> None:
        """Refuse unless the spans are holes, the slots fit them, and boundary `end` becomes valid."""
        what = f"{self.name}: attaching {list(spans)} for boundary {end}"
        before = 0
        for span in spans:
            if not before <= span.start < span.end <= end:
                raise AttachRefused(f"{what}: expected spans in page order, disjoint, and not behind the boundary")
            before = span.end
            if self.holes(node, *span) != [span]:
                raise AttachRefused(f"{what}: {span} lies over a live part")
        if self.units(spans) != len(slots):
            raise AttachRefused(f"{what}: expected {self.units(spans)} slots, got {len(slots)}")
        first = self.reach(end)
        inside = [Span(max(span.start, first), span.end) for span in spans if span.end > first]
        if self.units(inside) != self.units(self.holes(node, first, end)):
            raise AttachRefused(f"{what}: {self.holes(node, first, end)} must all be filled")

    # -- structure -----------------------------------------------------------------------------------------

    def born(self, node: Node, slots: tuple[int, ...]) -> None:
        """Take the slots of a new node; none makes a tombstone."""
        node.cells[self.at].slots = slots
        if slots:
            self._append(node)

    def split(self, upper: Node, lower: Node) -> None:
        """Divide a cell with its node; counts and recency go to both halves."""
        mine, theirs = upper.cells[self.at], lower.cells[self.at]
        if not self.per_page:
            return
        mine.locks = theirs.locks
        if theirs.slots:
            size = upper.end - upper.start
            mine.slots, theirs.slots = theirs.slots[:size], theirs.slots[size:]
            if not mine.locks:
                self._insert_before(lower, upper)

    def rehomed(self, node: Node, old: tuple[int, ...]) -> None:
        """Note that the spine's slots of the node changed from `old`."""

    def trimmed(self, node: Node, pages: int) -> None:
        """Give back what lies behind the first `pages` pages of an unlocked node."""
        cell = node.cells[self.at]
        if not cell.slots:
            return
        keep = pages if self.per_page else 0
        gone, rest = cell.slots[keep:], cell.slots[:keep]
        self.pool.free(gone)
        self.evictable -= len(gone)
        if not rest:
            self.host.bared(self.name, node)
            self._cut(node)
        cell.slots = rest

    def gone(self, node: Node) -> None:
        """Give back everything at an unlocked node that is about to go."""
        cell = node.cells[self.at]
        if cell.slots:
            self._unlink(node)
            self.pool.free(cell.slots)
            cell.slots = ()

    def fill(self, node: Node, slots: tuple[int, ...]) -> None:
        """Give slots to a node that has none. Locks over it counted what is no longer there, and die."""
        cell = node.cells[self.at]
        assert not cell.slots, f"{self.name}: pages {node.start} to {node.end} are filled twice"
        if cell.locks:
            self._kill(node)
        cell.slots = slots
        self._append(node)
        self.host.filled(self.name, node)

    # -- recency: a ring of the nodes with slots and without locks, oldest first -----------------------------

    def ring_members(self) -> list[Node]:
        """Nodes in the ring, oldest first."""
        found, node = [], self.ring.cells[self.at].newer
        while node is not self.ring:
            found.append(node)
            node = node.cells[self.at].newer
        return found

    def check(self, nodes: Sequence[Node]) -> None:
        """Raise InvariantBroken if what a subclass keeps beside the cells does not fit the nodes."""

    def _append(self, node: Node) -> None:
        self._insert_before(self.ring, node)
        self.evictable += len(node.cells[self.at].slots)

    def _insert_before(self, place: Node, node: Node) -> None:
        at = self.at
        behind, cell = place.cells[at], node.cells[at]
        older = behind.older
        cell.older, cell.newer = older, place
        older.cells[at].newer = behind.older = node

    def _cut(self, node: Node) -> None:
        at = self.at
        cell = node.cells[at]
        older, newer = cell.older, cell.newer
        older.cells[at].newer, newer.cells[at].older = newer, older
        cell.older = cell.newer = NIL

    def _unlink(self, node: Node) -> None:
        self._cut(node)
        self.evictable -= len(node.cells[self.at].slots)

    def touch(self, node: Node) -> None:
        """Make the nodes that a use ending at `node` touches the newest, the end last."""
        top, at, touched = self.reach(node.end), self.at, []
        while node.end > top:
            cell = node.cells[at]
            if cell.slots and not cell.locks:
                touched.append(node)
            node = node.parent
        ring = self.ring
        for node in reversed(touched):
            self._cut(node)
            self._insert_before(ring, node)

    # -- locks ---------------------------------------------------------------------------------------------

    def span_top(self, start: int, end: int) -> int:
        """First page that a transfer of pages [start, end) needs protected."""
        return min(start, self.reach(end)) if self.per_page else self.reach(end)

    def lock(self, serial: int, node: Node, top: int) -> None:
        """Protect the nodes from the one that holds page `top` down to `node`, tombstones too."""
        at, end = self.at, node
        start = node.end
        while node.end > top:
            cell = node.cells[at]
            if not cell.locks and cell.slots:
                self._unlink(node)
            cell.locks += 1
            start = node.start
            node = node.parent
        # A position, not a node: it stays right whatever is split later.
        self.holders[serial] = (end, start if self.per_page else end.end - 1)

    def unlock(self, serial: int) -> None:
        """Undo `lock`; a dead one has been undone when it died. What is free again counts as just used."""
        if serial in self.dead:
            self.dead.remove(serial)
            return
        node, start = self.holders.pop(serial)
        at, free = self.at, []
        while node.end > start:
            cell = node.cells[at]
            cell.locks -= 1
            if not cell.locks and cell.slots:
                free.append(node)
            node = node.parent
        for node in reversed(free):
            self._append(node)

    def refuse_dead(self, serial: int) -> None:
        """Raise DeadReceipt if what the receipt protected was filled anew since."""
        if serial in self.dead:
            raise DeadReceipt(f"{self.name}: the window of receipt {serial} was attached anew; it protects nothing")

    def _kill(self, node: Node) -> None:
        """End every lock that counts at `node`."""
        for serial, (end, start) in list(self.holders.items()):
            below = end
            while below.end > start and below is not node:
                below = below.parent
            if below is node and node.end > start:
                self.unlock(serial)
                self.dead.add(serial)

    # -- space ---------------------------------------------------------------------------------------------

    def evict(self, n: int) -> int:
        """Free at least `n` slots as far as unlocked ones go, least recently used first; returns how many."""
        freed, at = 0, self.at
        while freed < n:
            node = self.ring.cells[at].newer
            if node is self.ring:
                break
            freed += len(node.cells[at].slots)
            self.vacate(node)
        return freed

    def vacate(self, node: Node) -> None:
        """Free the slots at an unlocked node, and the node with them if it is a leaf without holds."""
        if node.children or node.held:
            self.bare(node)
        else:
            self.host.delete_leaf(node)

    def bare(self, node: Node) -> None:
        """Free the slots of an unlocked node that stays."""
        self.host.bared(self.name, node)
        self.gone(node)


def nodes_between(node: Node, start: int) -> Sequence[Node]:
    """Return the nodes of a path from `node` up to the one that holds page `start`, in page order."""
    path = []
    while node.end > start:
        path.append(node)
        node = node.parent
    path.reverse()
    return path
