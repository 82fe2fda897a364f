"""What a component keeps at the nodes: slots, a recency ring of what may be evicted, locks by receipt number.

Owns the cells of one component and every change of them. Knows neither which boundaries are valid nor what a component
is for; never changes the structure of the tree: what it needs of it, it asks the `Host` for.

A node with slots and no lock is in the ring, which runs from the least recently used on. A locked one may be in it and
is passed over; what leaves its last lock counts as used just then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stagehold.cache.errors import DeadReceipt
from stagehold.cache.node import NIL, NOTHING, Cell, Node, new_ring
from stagehold.cache.pools import Pool


class Host(Protocol):
    """What a component may ask of the tree that it belongs to."""

    def delete_leaf(self, node: Node) -> None:
        """Remove a leaf without holds, with all that any component keeps there."""

    def bared(self, component: str, node: Node) -> None:
        """Note that the component's slots at the node are about to go while the node stays."""

    def filled(self, component: str, node: Node) -> None:
        """Note that the component's slots have come to a node that had none."""


class Cells:
    """The cells of one component. `per_page`: one slot for each page of a node, or one for its end."""

    name: str
    per_page: bool

    def __init__(self) -> None:
        self.at = 0
        self.evictable = 0
        self.doubled = 0  # slots that a holder has published and will not get back when it moves on: others hold them
        self.holders: dict[int, tuple[Node, int]] = {}
        self.owners: dict[int, int] = {}  # by receipt number: the first page that the holder has published itself
        self.dead: set[int] = set()
        self.ring = NIL
        self.pool: Pool
        self.host: Host

    def bind(self, at: int, pool: Pool, host: Host) -> None:
        """Take place number `at` in the cells of every node, and the pool that the slots are of."""
        assert self.ring is NIL, f"{self.name}: a component belongs to one tree"
        self.at, self.pool, self.host = at, pool, host
        self.ring = new_ring(at + 1)

    # -- structure -----------------------------------------------------------------------------------------

    def reach(self, end: int) -> int:
        """First page that a use ending at boundary `end` touches and a lock protects."""
        raise NotImplementedError

    def born(self, node: Node, slots: list[int]) -> None:
        """Take the slots of a new node; none makes a tombstone."""
        if slots:
            node.cells[self.at].slots = slots
            self.evictable += len(slots)
            self._insert_before(self.ring, node)

    def split(self, upper: Node, lower: Node) -> None:
        """Divide a cell with its node; counts and recency go to both halves."""
        mine, theirs = upper.cells[self.at], lower.cells[self.at]
        if not self.per_page:
            return
        mine.locks, mine.own = theirs.locks, theirs.own
        if theirs.slots:
            size = upper.end - upper.start
            mine.slots, theirs.slots = theirs.slots[:size], theirs.slots[size:]
            if theirs.older is not NIL:
                self._insert_before(lower, upper)

    def rehomed(self, node: Node, old: list[int]) -> None:
        """Note that the spine's slots of the node changed from `old`."""

    def trimmed(self, node: Node, pages: int) -> None:
        """Give back what lies behind the first `pages` pages of an unlocked node."""
        cell = node.cells[self.at]
        if not cell.slots:
            return
        keep = pages if self.per_page else 0
        gone = cell.slots[keep:]
        self.pool.free(gone)
        self.evictable -= len(gone)
        if keep:
            del cell.slots[keep:]
        else:
            self.host.bared(self.name, node)
            self._cut(node)
            cell.slots = NOTHING

    def gone(self, node: Node) -> None:
        """Give back everything at an unlocked node that is about to go."""
        cell = node.cells[self.at]
        slots = cell.slots
        if slots:
            self._cut(node)
            self.evictable -= len(slots)
            self.pool.free(slots)
            cell.slots = NOTHING

    def fill(self, node: Node, slots: list[int]) -> None:
        """Give slots to a node that has none. Locks over it counted what is no longer there, and die."""
        cell = node.cells[self.at]
        assert not cell.slots, f"{self.name}: pages {node.start} to {node.end} are filled twice"
        if cell.locks:
            self._kill(node)
        cell.slots = slots
        self.evictable += len(slots)
        self._insert_before(self.ring, node)
        self.host.filled(self.name, node)

    # -- recency: a ring of the nodes with slots, oldest first -----------------------------

    def ring_members(self) -> list[Node]:
        """Nodes in the ring that are not locked, oldest first."""
        found, node = [], self.ring.cells[self.at].newer
        while node is not self.ring:
            if not node.cells[self.at].locks:
                found.append(node)
            node = node.cells[self.at].newer
        return found

    def check(self, nodes: Sequence[Node]) -> None:
        """Raise InvariantBroken if what a subclass keeps beside the cells does not fit the nodes."""

    def _insert_before(self, place: Node, node: Node) -> None:
        at = self.at
        behind, cell = place.cells[at], node.cells[at]
        older = behind.older
        cell.older = older
        cell.newer = place
        older.cells[at].newer = behind.older = node

    def _cut(self, node: Node) -> None:
        at = self.at
        cell = node.cells[at]
        older, newer = cell.older, cell.newer
        older.cells[at].newer = newer
        newer.cells[at].older = older
        cell.older = cell.newer = NIL

    def _place_before(self, place: Node, node: Node) -> None:
        """Move a node of the ring, or of none, to just before `place`."""
        cell = node.cells[self.at]
        if cell.newer is not place:
            if cell.older is not NIL:
                self._cut(node)
            self._insert_before(place, node)

    def renew(self, node: Node, top: int) -> None:
        """Make the nodes of a path from the one that holds page `top` down to `node` the newest, the end last."""
        at, place = self.at, self.ring
        while node.end > top:
            cell = node.cells[at]
            if cell.slots and not cell.locks:
                if cell.newer is not place:
                    self._place_before(place, node)
                place = node
            node = node.parent

    # -- locks ---------------------------------------------------------------------------------------------

    def lock(self, serial: int, node: Node, first: int, own: int | None = None) -> None:
        """Protect pages from `first` to the end of `node`, tombstones too; of checkpoints, the one at its end.

        The holder has published the pages from `own` on itself, and counts on their slots when it moves on; on a
        checkpoint nobody does.
        """
        at, bottom, start = self.at, node, node.end
        own = own if self.per_page else None
        top = first if self.per_page else self.reach(start)
        while node.end > top:
            cell = node.cells[at]
            if not cell.locks:
                self.evictable -= len(cell.slots)
            start = node.start
            if own is None and not cell.own:
                cell.locks += 1
            else:
                self._count(cell, 1, 0 if own is None or start < own else 1)
            node = node.parent
        # A position, not a node: it stays right whatever is split later.
        self.holders[serial] = (bottom, start if self.per_page else bottom.end - 1)
        if own is not None:
            self.owners[serial] = own

    def _count(self, cell: Cell, locks: int, own: int) -> None:
        """So many locks of a cell come or go, and so many of them are of a holder that published its slots."""
        before = min(cell.own, cell.locks - 1)
        after = min(cell.own + own, cell.locks + locks - 1)
        self.doubled += len(cell.slots) * (max(0, after) - max(0, before))
        cell.locks += locks
        cell.own += own

    def unlock(self, serial: int) -> None:
        """Undo `lock`, if it was one of this component's. What is free again counts as just used.

        A dead one has been undone when it died.
        """
        if serial in self.dead:
            self.dead.remove(serial)
            return
        if serial not in self.holders:
            return
        node, start = self.holders.pop(serial)
        own = self.owners.pop(serial, None)
        at, place = self.at, self.ring
        while node.end > start:
            cell = node.cells[at]
            if own is None and not cell.own:
                cell.locks -= 1
            else:
                self._count(cell, -1, 0 if own is None or node.start < own else -1)
            if cell.slots and not cell.locks:
                self.evictable += len(cell.slots)
                if cell.newer is not place:
                    self._place_before(place, node)
                place = node
            node = node.parent

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
            cell = node.cells[at]
            if cell.locks:
                self._cut(node)
            else:
                freed += len(cell.slots)
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
