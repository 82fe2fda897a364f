"""The live tree: which prefixes the device pools hold now, and what goes first.

The face of the wing for the lifecycle; the part of it that protects stands in `protection`. What `insert` takes
belongs to the tree until it is evicted or flushed back into its pool. Never allocates a slot, never moves a byte,
reads no clock. Queries said to be read-only touch no recency and split nothing. Positions are pages from the root of
a chain; a prefix is named by chain and length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stagehold.cache.check import check, owned_slots
from stagehold.cache.components.base import Cut, Declared, Span
from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import SPINE, Full
from stagehold.cache.errors import FlushRefused, InvariantBroken, SpanRefused
from stagehold.cache.events import ChangeEvent, Reason
from stagehold.cache.insert import Inserted, Slots, insert
from stagehold.cache.keys import Chain
from stagehold.cache.node import Node
from stagehold.cache.protection import Protected
from stagehold.cache.snapshot import copy_spine, digest
from stagehold.cache.spine import slots_between

LEAVES_LOOKED_AT = 1024
"""Of those that would go next, to find some of a tenant that has more than its own: what one eviction may cost, where
all that many are of others. Then these go."""


@dataclass(frozen=True, slots=True)
class TreeStats:
    """Sizes of a tree: nodes, and pages of the component that carries it."""

    nodes: int
    namespaces: int
    total: int
    evictable: int
    pinned: int
    holds: int


class Tree(Protected):
    """One prefix tree over the pools of its components. `checked` audits itself after every change."""

    # -- questions, all read-only --------------------------------------------------------------------------

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
        freed = 0 if self.quota is None else self._evict_beyond(n)
        while freed < n and (leaf := self.order.victim()) is not None:
            freed += self._shed(leaf, n - freed)
        return freed

    def _shed(self, leaf: Node, pages: int) -> int:
        """Free the last `pages` of a leaf, or the whole of a shorter one; returns how many went."""
        size = leaf.end - leaf.start
        if pages < size:
            self.trim(leaf, pages)
            return pages
        self.delete_leaf(leaf)
        return size

    def _evict_beyond(self, n: int) -> int:
        """Free pages of tenants that have more than they are guaranteed, while there are such leaves."""
        freed = 0
        while freed < n and (leaving := self._beyond(n - freed)):
            freed += sum(self._shed(leaf, pages) for leaf, pages in leaving)
        return freed

    def _beyond(self, n: int) -> list[tuple[Node, int]]:
        """Such leaves in the order in which they would go, each with how many of its last pages may; `n` at most."""
        assert self.quota is not None
        found: list[tuple[Node, int]] = []
        spare = {tenant: pages for tenant in self.quota.used if (pages := self.quota.spare(tenant))}
        for leaf in islice(self.order.coming(), LEAVES_LOOKED_AT) if spare else ():
            tenant = self.tenant(leaf)
            pages = min(leaf.end - leaf.start, spare.get(tenant, 0), n)
            if pages:
                found.append((leaf, pages))
                spare[tenant] -= pages
                n -= pages
            if not n:
                break
        return found

    def _coming(self) -> Iterable[Node]:
        """Leaves in the order in which they would go: those of tenants with more than their own before the others."""
        quota = self.quota
        if quota is None:
            return self.order.coming()
        first = islice(self.order.coming(), LEAVES_LOOKED_AT)
        return sorted(first, key=lambda leaf: not quota.spare(self.tenant(leaf)))

    def next_out(self, n: int, component: str = SPINE) -> list[list[int]]:
        """Slots of pages whose nodes the next evictions of `n` slots of a component would take, node by node.

        The slots are those of the component that carries the tree, whatever would be evicted. Leaves as they are
        now: what would become a leaf by these evictions is not among them.
        """
        found: list[list[int]] = []
        coming = self._coming() if component == SPINE else self.part(component).ring_members()
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
