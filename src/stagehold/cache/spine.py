"""The structure of the live tree: how nodes are made, divided, shortened and removed.

Owns every change of structure and the totals that go with it; each change keeps the resident set
prefix-closed, gives each component its part, and leaves the books right. Decides nothing: who calls it has
checked that it may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagehold.cache.claims import Claims
from stagehold.cache.components.base import Component, Span
from stagehold.cache.components.full import SPINE
from stagehold.cache.errors import CacheRefused, SpanRefused
from stagehold.cache.events import Change, ChangeEvent, Reason, Tier
from stagehold.cache.holds import Holds
from stagehold.cache.keys import Chain, block_pages
from stagehold.cache.match import Index
from stagehold.cache.moves import Moves
from stagehold.cache.node import NIL, Cell, Node, new_root
from stagehold.cache.pools import Pool
from stagehold.cache.recency import EvictionOrder, LeafLRU
from stagehold.cache.residency import Residency
from stagehold.cache.tenants import Quota


class Spine:
    """Nodes, index, books and components of one tree. The pools go by component name."""

    def __init__(
        self,
        page_size: int,
        pools: Mapping[str, Pool],
        *,
        components: Sequence[Component] = (),
        order: EvictionOrder | None = None,
        checked: bool = False,
        events: bool = False,
        book: Residency | None = None,
    ) -> None:
        names = [SPINE, *(part.name for part in components)]
        if sorted(pools) != sorted(names):
            raise CacheRefused(f"tree: components {sorted(names)} need a pool each, got {sorted(pools)}")
        self.page_size = page_size
        self.pools = dict(pools)
        self.pool = pools[SPINE]
        self.order: EvictionOrder = LeafLRU() if order is None else order
        self.index = Index(page_size, block_pages(page_size))
        self.holds = Holds(self.order)
        self.parts = tuple(components)
        for at, part in enumerate(self.parts):
            part.bind(at, pools[part.name], self)
        # One that may reject in one look goes before one that walks a window.
        self.gates = tuple(sorted((part for part in self.parts if part.gates), key=lambda part: part.per_page))
        self.log: list[ChangeEvent] | None = [] if events else None
        self.gone: list[int] | None = None  # slots of pages that went since they were last asked for; None: nobody asks
        self.moves = Moves(book or Residency()) if checked or book is not None else None
        self.claims = Claims()
        self.quota: Quota | None = None  # what each tenant has of the pages, where tenants have quotas
        self.nodes = 0
        self.total = 0
        self.changes = 0  # moves whenever a match could come out otherwise

    def part(self, component: str) -> Component:
        """Return the component of this name, other than the one that carries the tree."""
        for part in self.parts:
            if part.name == component:
                return part
        raise CacheRefused(f"tree: no component {component!r} beside {SPINE!r}; there are {sorted(self.pools)}")

    # -- places --------------------------------------------------------------------------------------------

    def limit(self, chain: Chain, limit: int | None) -> int:
        """Return the pages to look at; refuses a chain of another page size."""
        if chain.page_size != self.page_size:
            raise SpanRefused(f"chain of page size {chain.page_size} on a tree of page size {self.page_size}")
        if limit is None or limit > chain.n_pages:
            return chain.n_pages
        if limit < 0:
            raise SpanRefused(f"{limit} pages: expected none or more")
        return limit

    def covering(self, chain: Chain, start: int, end: int) -> Node:
        """Return the node that holds page end - 1; refuses a span that is not live."""
        node, live = self.index.locate(chain, self.limit(chain, end))
        if not 0 <= start <= end or live != end:
            raise SpanRefused(f"pages {start} to {end}: the chain has {chain.n_pages} pages and {live} of them live")
        return node

    def boundary(self, chain: Chain, pages: int) -> Node:
        """Return the node that ends at `pages`, made by a split if need be; refuses what is not live."""
        here = chain.page_size == self.page_size and 0 <= pages <= chain.n_pages
        node, live = self.index.locate(chain, pages if here else self.limit(chain, pages))
        if live != pages:
            raise SpanRefused(f"prefix of {pages} pages: the chain has {chain.n_pages} and {live} of them live")
        return node if node.end == pages or not pages else self.split(node, pages, chain)

    def root(self, chain: Chain) -> Node:
        """Return the root of the chain's namespace, made if need be. It goes with its last child."""
        root = self.index.roots.get(chain.root_key)
        if root is None:
            root = self.index.roots[chain.root_key] = new_root()
            root.keys = [chain.root_key]
        return root

    def tenant(self, node: Node) -> bytes:
        """Whose a node is: the key of its namespace's root, which is its own parent."""
        while node.parent is not node:
            node = node.parent
        return node.keys[0]

    # -- changes -------------------------------------------------------------------------------------------

    def split(self, lower: Node, at: int, chain: Chain) -> Node:
        """Cut a node of the chain in two at page `at` and return the upper half.

        The lower half keeps the object: handles, holds, checkpoints and places in the orders stay right.
        """
        size = at - lower.start
        upper = Node(lower.parent, lower.start, at, lower.slots[:size], tuple([Cell() for _ in self.parts]))
        lower.slots = lower.slots[size:]
        self.holds.split(upper, lower)
        self.order.split(upper, lower)
        lower.parent, lower.start = upper, at
        self.index.divide(upper, lower, chain)
        for part in self.parts:
            part.split(upper, lower)
        if self.claims.nodes:
            self.claims.split(upper, lower)
        if self.moves is not None:
            self.moves.divided(upper, lower)
        self.nodes += 1
        return upper

    def grow(
        self,
        parent: Node,
        chain: Chain,
        end: int,
        slots: list[int],
        others: Sequence[list[int]] = (),
    ) -> Node:
        """Add a leaf [parent.end, end) of the chain, in use just now, with the other components' slots."""
        start = parent.end
        parts = self.parts
        node = Node(parent, start, end, slots, tuple([Cell() for _ in parts]) if parts else ())
        for part, own in zip(parts, others, strict=False):
            part.born(node, own)
        if self.moves is not None:
            self.moves.born(node, chain, [(part, bool(own)) for part, own in zip(self.parts, others, strict=True)])
        if not parent.children:
            self.order.covered(parent)
        parent.children += 1
        self.index.publish(node, chain)
        self.nodes += 1
        self.changes += 1
        self.total += end - start
        if self.quota is not None:
            self.quota.add(chain.root_key, end - start)
        self.holds.evictable += end - start
        self.order.born(node)
        if self.log is not None:
            self.record(Change.STORED, Reason.INSERTED, Span(start, end), node.keys)
        return node

    def trim(self, leaf: Node, pages: int) -> None:
        """Free the last `pages` pages of a longer leaf without holds, and a checkpoint at its end."""
        end = leaf.end - pages
        keep = end - leaf.start
        for part in self.parts:
            part.trimmed(leaf, keep)
        if self.moves is not None:
            self.moves.removed(leaf, keep, self._others, evicted=True)
        gone = leaf.slots[keep:]
        del leaf.slots[keep:]
        old_end = leaf.end
        keys = self.index.shorten(leaf, end)
        self.order.shortened(leaf, pages, keys)
        self.changes += 1
        if self.quota is not None:
            self.quota.add(self.tenant(leaf), -pages)
        self.total -= pages
        self.holds.evictable -= pages
        if self.log is not None:
            self.record(Change.REMOVED, Reason.EVICTED, Span(end, old_end), keys)
        if self.gone is not None:
            self.gone += gone
        self.pool.free(gone)

    def delete_leaf(self, leaf: Node, reason: Reason = Reason.EVICTED) -> None:
        """Remove a leaf without holds, with all that any component keeps there."""
        assert leaf.held == leaf.children == 0, f"pages {leaf.start} to {leaf.end} are held or go on"
        self.index.withdraw(leaf)
        for part in self.parts:
            part.gone(leaf)
        if self.moves is not None:
            self.moves.removed(leaf, 0, self._others, evicted=reason is Reason.EVICTED)
        parent, size = leaf.parent, leaf.end - leaf.start
        self.nodes -= 1
        self.changes += 1
        if self.quota is not None:
            self.quota.add(self.tenant(leaf), -size)
        self.total -= size
        self.holds.evictable -= size
        self.order.removed(leaf, parent)
        parent.children -= 1
        if not parent.children:
            self._bereaved(parent)
        if self.log is not None:
            self.record(Change.REMOVED, reason, Span(leaf.start, leaf.end), leaf.keys)
        if self.gone is not None:
            self.gone += leaf.slots
        self.pool.free(leaf.slots)

    @property
    def _others(self) -> list[str]:
        return [part.name for part in self.parts]

    def _bereaved(self, parent: Node) -> None:
        if parent.parent is parent:
            del self.index.roots[parent.keys[0]]
            parent.parent = NIL  # a root is its own parent, and would wait for the collector
        elif not parent.held:
            self.order.offer(parent)

    # -- records -------------------------------------------------------------------------------------------

    def record(self, change: Change, reason: Reason, span: Span, keys: Sequence[bytes], component: str = SPINE) -> None:
        """Append a change event; only called where somebody asked for events."""
        assert self.log is not None
        self.log.append(ChangeEvent(change, Tier.DEVICE, reason, component, span.start, span.end, tuple(keys)))

    def bared(self, component: str, node: Node) -> None:
        """Note that a component's slots at a node are about to go while the node stays."""
        self.changes += 1
        if self.moves is not None:
            self.moves.emptied(node, self.part(component))
        if self.log is not None:
            self.record(Change.REMOVED, Reason.EVICTED, Span(node.start, node.end), (), component)

    def filled(self, component: str, node: Node) -> None:
        """Note that a component's slots have come to a node that had none."""
        self.changes += 1
        if self.moves is not None:
            self.moves.filled(node, self.part(component))
        if self.log is not None:
            self.record(Change.STORED, Reason.ATTACHED, Span(node.start, node.end), (), component)


def slots_between(node: Node, start: int, end: int) -> list[int]:
    """Slots of pages [start, end) of the path to `node`, which holds page end - 1."""
    parts = []
    while node.end > start:
        parts.append(node.slots)
        top = node.start
        node = node.parent
    found: list[int] = []
    for slots in reversed(parts):
        found += slots
    return found[start - top : end - top] if parts else found
