"""The live tree: which prefixes the device pools hold now, who protects them, and what goes first.

The face of the wing for the lifecycle. What `insert` takes belongs to the tree until it is evicted or
flushed back into its pool. Never allocates a slot, never moves a byte, reads no clock. Queries said to be
read-only touch no recency and split nothing. Positions are pages from the root of a chain; a prefix is
named by chain and length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagehold.cache.check import check, owned_slots
from stagehold.cache.components.base import Cut, Declared, Span
from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import SPINE, Full
from stagehold.cache.errors import ClaimRefused, FlushRefused, InvariantBroken, ReceiptRefused, SpanRefused
from stagehold.cache.events import ChangeEvent, Reason
from stagehold.cache.holds import EMPTY, LOCK, PIN, SPAN, Hold, Receipt, unprotected
from stagehold.cache.insert import Inserted, Slots, insert
from stagehold.cache.keys import Chain
from stagehold.cache.node import Node
from stagehold.cache.snapshot import copy_spine, digest
from stagehold.cache.spine import Spine, slots_between


@dataclass(frozen=True, slots=True)
class TreeStats:
    """Sizes of a tree: nodes, and pages of the component that carries it."""

    nodes: int
    namespaces: int
    total: int
    evictable: int
    pinned: int
    holds: int


class Tree(Spine):
    """One prefix tree over the pools of its components. `checked` audits itself after every change."""

    # -- questions, all read-only --------------------------------------------------------------------------

    @property
    def evictable(self) -> int:
        """Pages that no hold protects."""
        return self.holds.evictable

    @property
    def pinned(self) -> int:
        """Pages under at least one pin."""
        return self.holds.pinned

    def full_match(self, chain: Chain, limit: int | None = None) -> int:
        """Live pages of the chain, at most `limit`."""
        return self.index.locate(chain, self.limit(chain, limit))[1]

    def joint_match(self, chain: Chain, limit: int | None = None) -> int:
        """Pages of the longest live prefix, at most `limit`, that every gating component can go on from."""
        node, at = self.index.locate(chain, self.limit(chain, limit))
        return self._retreat(node, at)[1] if self.gates else at

    def _retreat(self, node: Node, at: int) -> tuple[Node, int]:
        while at:
            before = at
            for gate in self.gates:
                node, at = gate.retreat(node, at)
            if at == before:
                break
        return node, at

    def slots(self, chain: Chain, start: int, end: int, component: str = SPINE) -> list[int]:
        """Slots of pages [start, end), live and without a hole; one per page, or one at `end`."""
        node = self.covering(chain, start, end)
        return slots_between(node, start, end) if component == SPINE else self.part(component).slots(node, start, end)

    def missing(self, chain: Chain, start: int, end: int, component: str = SPINE) -> list[Span]:
        """Spans of [start, end) that the component does not have: merged, half-open, in page order.

        Tombstones inside the live prefix and everything behind it; a checkpoint is asked for at `end` alone.
        """
        if start < 0:
            raise SpanRefused(f"pages {start} to {end}: expected a span")
        node, live = self.index.locate(chain, self.limit(chain, end))
        if component == SPINE:
            return [Span(max(live, start), end)] if max(live, start) < end else []
        return self.part(component).missing(node, live, Span(start, end))

    def protect_cost(self, chain: Chain, pages: int) -> int:
        """Pages that would leave `evictable` if this live prefix were held now."""
        return unprotected(self.covering(chain, 0, pages), pages) if pages else 0

    def pin_cost(self, chain: Chain, pages: int) -> int:
        """Pages that would be newly charged if this live prefix were pinned now."""
        return self.holds.uncharged(self.covering(chain, 0, pages), pages) if pages else 0

    def unlocked(self, chain: Chain, start: int, end: int, component: str) -> int:
        """Slots of a component over live pages [start, end) that a hold would take from what can be promised."""
        return self.part(component).unlocked(self.covering(chain, start, end), start, end) if start < end else 0

    def resident(self, chain: Chain, start: int, end: int, component: str = SPINE) -> list[Span]:
        """Spans of [start, end) that the component has: what `missing` leaves, merged and in page order."""
        if component != SPINE and not self.part(component).per_page:
            start = max(start, end - 1)
        spans: list[Span] = []
        for hole in (*self.missing(chain, start, end, component), Span(end, end)):
            if hole.start > start:
                spans.append(Span(start, hole.start))
            start = hole.end
        return spans

    @property
    def components(self) -> tuple[Declared, ...]:
        """What is declared of each component, the one that carries the tree first."""
        return (Full(), *self.parts)

    def evictable_slots(self, component: str = SPINE) -> int:
        """Slots of the component that `evict` could free now."""
        return self.holds.evictable if component == SPINE else self.part(component).evictable

    def doubled_slots(self, component: str) -> int:
        """Slots of the component that holders of locks count on, and cannot have when they move on."""
        return self.part(component).doubled

    def stats(self) -> TreeStats:
        """Return the sizes now."""
        return TreeStats(
            nodes=self.nodes,
            namespaces=len(self.index.roots),
            total=self.total,
            evictable=self.holds.evictable,
            pinned=self.holds.pinned,
            holds=len(self.holds.holders),
        )

    # -- use -----------------------------------------------------------------------------------------------

    def match(self, chain: Chain, limit: int | None = None) -> int:
        """Joint match that counts as a use: the match becomes a node boundary and the newest of its kind."""
        node, at = self.index.locate(chain, self.limit(chain, limit))
        if self.gates:
            node, at = self._retreat(node, at)
        if at:
            self._touch(node if node.end == at else self.split(node, at, chain))
        return at

    def touch(self, chain: Chain, pages: int) -> None:
        """Count a use that ends at boundary `pages`, which must be live."""
        if pages:
            self._touch(self.boundary(chain, pages))

    def _touch(self, node: Node) -> None:
        self.order.used(node)
        for part in self.parts:
            part.touch(node)

    # -- holds ---------------------------------------------------------------------------------------------

    def lock(
        self, chain: Chain, pages: int, *, firsts: Mapping[str, int] | None = None, own: int | None = None
    ) -> Receipt:
        """Protect all components of a live prefix: FULL to the root, the others as far as a use reaches.

        Of the components that `firsts` names, from their pages on. The holder has published the pages from `own` on
        itself: it counts on their slots when it moves on, and `doubled_slots` are those that others hold as well.
        """
        if not pages:
            return EMPTY[LOCK]
        for page in (min(own or pages, pages), pages):  # a node is all of the holder's own, or nothing of it
            node = self.boundary(chain, page)
        receipt = self.holds.take(LOCK, node)
        for part in self.parts:
            part.lock(receipt.serial, node, (firsts or {}).get(part.name, part.reach(pages)), own)
        return receipt

    def unlock(self, receipt: Receipt, *, forfeit: bool = False) -> None:
        """Give a lock back.

        One whose window was attached anew is dead and refused; with `forfeit` the window is given up and
        the rest given back.
        """
        if receipt.kind is not LOCK:
            raise _other_kind(LOCK, receipt)
        self._give(receipt, forfeit=forfeit)

    def pin(self, chain: Chain, pages: int) -> Receipt:
        """Protect a live prefix as an anchor: no component but the one that carries the tree."""
        return self.holds.pin(self.boundary(chain, pages)) if pages else EMPTY[PIN]

    def unpin(self, receipt: Receipt) -> None:
        """Give a pin back."""
        if receipt.kind is not PIN:
            raise _other_kind(PIN, receipt)
        if receipt.serial:
            self.holds.unpin(receipt)

    def hold_span(
        self, chain: Chain, start: int, end: int, *, load: bool = False, firsts: Mapping[str, int] | None = None
    ) -> Receipt:
        """Protect what a transfer reads or writes: all components over [start, end), and the path to it.

        Where `firsts` is given, only the components that it names are protected besides the one that carries the
        tree, each from its own first page on and no further up: a span without a tombstone never dies.
        A `load` claims its span for itself, and is refused where another load in flight has claimed a page:
        it joins that load or recomputes.
        """
        if not 0 <= start <= end:
            raise SpanRefused(f"pages {start} to {end}: expected a span")
        if start == end:
            return EMPTY[SPAN]
        others = self.loads_over(chain, start, end) if load else ()
        if others:
            raise ClaimRefused(f"pages {start} to {end}: loads {list(others)} in flight bring part of them")
        if load and start:
            self.covering(chain, start, end)  # refused before anything is split
            self.boundary(chain, start)
        for name, first in (firsts or {}).items():
            if self.part(name).per_page and 0 < first < end:
                self.boundary(chain, first)
        node = self.boundary(chain, end)
        receipt = self.holds.take(SPAN, node)
        for part in self.parts:
            if firsts is None:
                part.lock(receipt.serial, node, min(start, part.reach(end)))
            elif part.name in firsts:
                part.lock(receipt.serial, node, firsts[part.name])
        if load:
            self.claims.take(receipt.serial, nodes_between(node, start))
        return receipt

    def loads_over(self, chain: Chain, start: int, end: int) -> tuple[int, ...]:
        """Receipt numbers of the loads in flight over live pages [start, end), oldest first; read-only."""
        return self.claims.over(nodes_between(self.covering(chain, start, end), start)) if self.claims.nodes else ()

    def release_span(self, receipt: Receipt, *, forfeit: bool = False) -> None:
        """Give a span back; dead ones as for `unlock`."""
        if receipt.kind is not SPAN:
            raise _other_kind(SPAN, receipt)
        self._give(receipt, forfeit=forfeit)
        if self.claims.nodes:
            self.claims.drop(receipt.serial)

    def _give(self, receipt: Receipt, *, forfeit: bool) -> None:
        serial = receipt.serial
        if not serial:
            return
        parts = self.parts
        for part in parts:
            if part.dead and not forfeit:
                part.refuse_dead(serial)
        self.holds.give(receipt)
        for part in parts:
            part.unlock(serial)

    # -- changes -------------------------------------------------------------------------------------------

    def insert(self, chain: Chain, start: int, end: int, slots: Slots) -> Inserted:
        """Publish pages [start, end) of the chain behind its live prefix, all or nothing.

        `slots` gives each component's slots, or FULL's alone. Slots of a component with one per page cover
        the last pages of the span, as many as there are; what they leave out is born a tombstone. A
        component with checkpoints brings at most one, for boundary `end`. Refuses a span that does not join
        the live prefix.
        """
        return insert(self, chain, (start, end), {SPINE: slots} if isinstance(slots, list | tuple) else slots)

    def attach(
        self, chain: Chain, end: int, spans: Sequence[Span], slots: Sequence[int], *, component: str
    ) -> list[Cut]:
        """Fill holes of a component so that boundary `end` becomes valid for it; returns the splits it made.

        `spans` are holes as `missing` gives them. Refuses, with nothing changed, slots that do not fit, a
        span over a live part, and holes left within reach of the boundary. Locks over a filled hole die.
        """
        part = self.part(component)
        part.admit(self.covering(chain, 0, end), end, spans, slots)
        cuts, rest = [], list(slots)
        for span in spans:
            for page in part.edges(span):
                before = self.nodes
                self.boundary(chain, page)
                if self.nodes > before:
                    cuts.append(Cut(page))
            for node in nodes_between(self.covering(chain, *span), span.start):
                size = node.end - node.start if part.per_page else 1
                part.fill(node, rest[:size])
                del rest[:size]
        return cuts

    def evict(self, n: int, component: str = SPINE) -> int:
        """Free at least `n` slots of the component if its evictable ones allow; returns how many were freed.

        A pass that frees nothing while the books say that it could raises InvariantBroken with the blockers.
        """
        freed = self._evict_pages(n) if component == SPINE else self.part(component).evict(n)
        if not freed and n > 0 and self.evictable_slots(component):
            raise InvariantBroken(
                f"evict {component}: nothing freed of {self.evictable_slots(component)}; {self._blockers()}"
            )
        return freed

    def _evict_pages(self, n: int) -> int:
        freed = 0
        while freed < n:
            node = self.order.victim()
            if node is None:
                break
            size = node.end - node.start
            if size > n - freed:
                self.trim(node, n - freed)
                return n
            self.delete_leaf(node)
            freed += size
        return freed

    def next_out(self, n: int, component: str = SPINE) -> list[list[int]]:
        """Slots of pages whose nodes the next evictions of `n` slots of a component would take, node by node.

        The slots are those of the component that carries the tree, whatever would be evicted. Leaves as they are
        now: what would become a leaf by these evictions is not among them.
        """
        found: list[list[int]] = []
        coming = self.order.coming() if component == SPINE else self.part(component).ring_members()
        for node in coming:
            if n <= 0:
                break
            found.append(list(node.slots))
            n -= len(node.slots if component == SPINE else node.cells[self.part(component).at].slots)
        return found

    def drain_gone(self) -> list[int]:
        """Slots of the pages that went since the last call; from the first call on they are remembered."""
        gone, self.gone = self.gone or [], []
        return gone

    def _blockers(self) -> str:
        held = [f"receipt {serial} at {node.end}" for serial, node in self.holds.holders.items()]
        return f"{self.nodes} nodes, {self.total} pages, {self.evictable} of them evictable, held by {held or 'nobody'}"

    def remove(self, chain: Chain, start: int) -> int:
        """Remove the chain's live pages from `start` on, as far as nothing goes on from them or holds them.

        Returns how many pages went.
        """
        if start < 0:
            raise SpanRefused(f"pages from {start} on: expected none or more to stay")
        node, live = self.index.locate(chain, self.limit(chain, None))
        gone = 0
        if live < node.end:
            return gone
        while node.end > start and not (node.held or node.children):
            parent, size = node.parent, node.end - node.start
            if node.start < start:
                size = node.end - start
                self.trim(node, size)
                return gone + size
            self.delete_leaf(node, Reason.DELETED)
            gone += size
            node = parent
        return gone

    def flush(self) -> int:
        """Remove everything; returns the pages freed. Refused while anything is held."""
        if self.holds.holders:
            raise FlushRefused(f"flush: {self._blockers()}")
        pages = self.total
        while (leaf := self.order.victim()) is not None:
            self.delete_leaf(leaf, Reason.FLUSHED)
        assert not self.total, f"flush left {self.total} pages"
        return pages

    def owned(self, component: str = SPINE) -> list[int]:
        """Return all slots of the component that the tree owns, for the ledger."""
        return owned_slots(self, component)

    def digest(self) -> bytes:
        """32 bytes over everything that a later answer could depend on."""
        return digest(self)

    def check(self) -> None:
        """Count everything again and raise InvariantBroken at the first difference; slow."""
        check(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tree:
        twin = copy_spine(self, memo)
        assert isinstance(twin, Tree)
        return twin

    def drain_events(self) -> list[ChangeEvent]:
        """Hand out the change events since the last call, oldest first; none unless the tree records them."""
        if self.log is None:
            return []
        events, self.log = self.log, []
        return events


def _other_kind(kind: Hold, receipt: Receipt) -> ReceiptRefused:
    return ReceiptRefused(f"{receipt}: it is a {receipt.kind.name}, not a {kind.name}")
