"""Room in the pools: how much may still be promised, how it is protected, taken, and given back.

Beneath every rule that needs a page. Slots and staging pages that were promised can always be had; a rule has looked
at the room before it takes, and failing here is a bug. What it may count on is what the poorest rank has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from stagehold.cache.components.base import Component
from stagehold.cache.components.build import build
from stagehold.cache.components.full import SPINE
from stagehold.cache.holds import Receipt
from stagehold.cache.keys import Chain
from stagehold.cache.orders import eviction_order
from stagehold.cache.recency import EvictionOrder
from stagehold.cache.residency import Residency
from stagehold.cache.tree import Tree
from stagehold.lifecycle.data import RequestData
from stagehold.lifecycle.errors import InvariantBroken
from stagehold.lifecycle.facts import Capacity
from stagehold.lifecycle.live import LiveView
from stagehold.lifecycle.quotas import Quotas
from stagehold.lifecycle.stocks import Stock, Stocks
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import HostMode


class Rooms:
    """The live tree and the stocks of one engine, and what of them may be used."""

    def __init__(self, config: EngineConfig, order: EvictionOrder | None = None, *, checked: bool = False) -> None:
        self.config = config
        self.stocks = Stocks(config, build(config.components, config.page_size))
        self.quotas = Quotas(config, self.stocks)
        self.device, self.staging = self.stocks.spine.device, self.stocks.spine.staging
        self.host = self.stocks.spine.host
        pools = {stock.name: stock.device for stock in self.stocks}
        order = eviction_order(config.eviction, config.device_pages) if order is None else order
        self.book = Residency() if checked else None
        parts = build(config.components, config.page_size)
        self.tree = Tree(config.page_size, pools, components=parts, order=order, book=self.book)
        if self.quotas.on:
            self.tree.quota = self.quotas.device
        if self.book is not None and config.host_memory_mode is HostMode.CACHE:
            self.stocks.watch(self.book)
        self.live: LiveView[Receipt, Receipt] = self.tree  # what decisions look at and protect
        self.least = self.most = Capacity(0, 0, 0)  # left on the poorest rank and on the richest, at the last exchange
        self.short = Capacity(0, 0, 0)  # what this rank had then and the poorest had not: nobody may count on it
        self.uneven = 0  # exchanges in a row in which not all ranks had the same left
        self.news = 0  # moves when a hold parks, a write queues, or something is given back that they may wait for

    # What tree and host memory hold

    def matches(self, chain: Chain, limit: int) -> tuple[int, int]:
        """Pages of the FULL and of the joint match; one look where no component gates a match."""
        live = self.live.full_match(chain, limit)
        return live, self.live.joint_match(chain, limit) if self.stocks.gates else live

    def in_reach(self, stock: Stock, chain: Chain, pages: int) -> list[int]:
        """Slots that a use ending at boundary `pages` reads of a component: those without a hole before it."""
        first = self._read_from(self.stocks.part(stock.name), chain, pages)
        return self.tree.slots(chain, first, pages, stock.name) if first < pages else []

    def _read_from(self, part: Component, chain: Chain, pages: int) -> int:
        """First page that a use at boundary `pages` can read of a component without meeting a hole."""
        spans = self.tree.resident(chain, part.reach(pages), pages, part.name)
        return spans[-1].start if spans and spans[-1].end == pages else pages

    def hosted_end(self, chain: Chain, start: int, limit: int) -> int:
        """The end of what host memory has behind the joint match `start`, if it is worth a hold; else 0.

        Where tenants have quotas, no more than a hold of this one can ever have: a claim cannot cut what gates a match.
        """
        if not len(self.host):
            return 0
        live = self.live.full_match(chain, limit)
        if live < start:
            return 0
        if self.quotas.on and self.stocks.gates:
            limit = min(limit, start + self.quotas.staging[0].most(chain.root_key))
        end = self.stocks.hosted(chain, start, live, limit)
        return end if end - start >= self.config.threshold_pages else 0

    # What may be promised

    @property
    def reserved(self) -> int:
        """Device pages promised to committed requests and not yet allocated."""
        return self.stocks.spine.reserved

    @reserved.setter
    def reserved(self, pages: int) -> None:
        self.stocks.spine.reserved = pages

    def own_room(self) -> int:
        """Device pages that this rank may still promise: free + evictable - promised."""
        return self.device.free_count + self.tree.evictable - self.reserved

    def own_room_of(self, stock: Stock) -> int:
        """The same for any component."""
        if stock is self.stocks.spine:
            return self.own_room()
        free = stock.device.free_count + self.tree.evictable_slots(stock.name)
        return free - self.tree.doubled_slots(stock.name) - stock.reserved

    def room(self) -> int:
        """Device pages that may still be promised, on the rank that has the fewest: what every decision asks for."""
        return self.room_of(self.stocks.spine)

    def room_of(self, stock: Stock) -> int:
        """The same for any component."""
        return self.own_room_of(stock) - self.short.of(stock.index)[1]

    def capacity(self) -> Capacity:
        """What this rank has left; on equal ranks all have the same."""
        left = [(stock.staging_free(), self.own_room_of(stock)) for stock in self.stocks.others]
        pins = self.config.pin_cap - self.tree.pinned
        beside = [pages for pair in left for pages in pair]
        return Capacity(self.stocks.spine.staging_free(), pins, self.own_room(), *beside)

    def staging_free(self) -> int:
        """Staging pages that can be had now on every rank, counting what the host tier would give up."""
        return self.staging_free_of(self.stocks.spine)

    def staging_free_of(self, stock: Stock) -> int:
        """The same for any component."""
        return stock.staging_free() - self.short.of(stock.index)[0]

    def staging_room(self, stock: Stock, namespace: bytes) -> int:
        """Those of them that one tenant may have: all but what the others still lack of what they are guaranteed."""
        return self.staging_free_of(stock) - self.quotas.staging[stock.index].for_others(namespace)

    def may_be_lent(self, stock: Stock, keys: Sequence[bytes], namespace: bytes) -> bool:
        """Whether a tenant may hold pages that the host tier has: what is held cannot be taken back for others."""
        return not self.quotas.on or stock.host.idle(keys) <= self.staging_room(stock, namespace)

    # Protection

    def pin(self, chain: Chain, pages: int, namespace: bytes) -> Receipt:
        """Pin a live prefix; the tenant is charged for what no other pin is charged for."""
        before = self.tree.pinned
        receipt = self.live.pin(chain, pages)
        self.quotas.count(self.quotas.pins, namespace, self.tree.pinned - before)
        return receipt

    def unpin(self, receipt: Receipt, namespace: bytes) -> None:
        """Give a pin back."""
        before = self.tree.pinned
        self.live.unpin(receipt)
        self.quotas.count(self.quotas.pins, namespace, self.tree.pinned - before)

    def protectable(self, chain: Chain, pages: int) -> bool:
        """Whether the live prefix could be locked without touching what others were promised."""
        if self.live.protect_cost(chain, pages) > self.room():
            return False
        return all(self.window_cost(stock, chain, pages) <= self.room_of(stock) for stock in self.stocks.others)

    def window_cost(self, stock: Stock, chain: Chain, pages: int) -> int:
        """Slots of a component that a lock at boundary `pages` would take from those that can be promised."""
        reach = self.stocks.part(stock.name).reach(pages)
        return self.tree.unlocked(chain, reach, pages, stock.name)

    def lock(self, chain: Chain, pages: int, runs: RequestData | None = None, *, whole: bool = False) -> Receipt:
        """Lock a live prefix for a request; for one that runs, as far as it published the prefix and still reads it.

        Of other components what a use at its end reads, and no slot more: a lock counts at whole nodes, so that one
        has to begin there. `whole`: with the holes that are about to be filled, and what lies before them.
        """
        firsts = {}
        for part in self.stocks.parts:
            first = part.reach(pages) if part.gates or whole else self._read_from(part, chain, pages)
            if runs is not None:
                first = min(pages, max(first, part.reach(runs.passed)))
            firsts[part.name] = first
            if part.per_page and 0 < first < pages:
                self.tree.boundary(chain, first)
        if not firsts:
            return self.live.lock(chain, pages)
        return self.tree.lock(chain, pages, firsts=firsts, own=None if runs is None else runs.hit)

    # Device slots

    def allocate(self, stock: Stock, slots: int) -> list[int]:
        """`slots` slots of any component, evicting as needed; the caller has looked at the room."""
        free = stock.device.free_count
        if free < slots:
            self.tree.evict(slots - free, stock.name)
        taken = stock.device.alloc(slots)
        if taken is None:
            can = f"{stock.device.free_count} free, {self.tree.evictable_slots(stock.name)} evictable"
            raise InvariantBroken(f"{slots} {stock.device.name} pages were promised, {can}")
        return taken

    def allocate_device(self, pages: int) -> list[int]:
        """The same of the component that carries the tree."""
        return self.allocate(self.stocks.spine, pages)

    def insert(
        self, chain: Chain, start: int, slots: list[int], others: Mapping[str, Sequence[int]] | None = None
    ) -> list[int]:
        """Publish `slots` as pages from `start` on; returns the slots that the tree shows there now.

        `others` has the slots of other components for the last of these pages. What a sibling has published
        meanwhile stays the sibling's, and ours goes back to the pools.
        """
        if not slots:
            return []
        end = start + len(slots)
        brought = {SPINE: slots, **{name: given for name, given in (others or {}).items() if given}}
        duplicates = self.tree.insert(chain, start, end, brought).duplicates
        for name, given in duplicates.items():
            self.stocks.by_name[name].device.free(given)
        return list(self.tree.slots(chain, start, end)) if any(duplicates.values()) else slots

    @contextmanager
    def loading(self) -> Iterator[None]:
        """What enters the tree meanwhile is spliced, not computed; of interest to checked engines alone."""
        if self.book is None:
            yield
            return
        self.book.loading = True
        try:
            yield
        finally:
            self.book.loading = False

    # Staging pages

    def allocate_staging(self, stock: Stock, namespace: bytes, pages: int) -> list[int]:
        """`pages` staging pages for a tenant; the caller has looked at `staging_room`."""
        stock.host.reclaim(pages, namespace)
        taken = stock.staging.alloc(pages, namespace)
        if taken is None:
            free = stock.staging.free_count
            raise InvariantBroken(f"{pages} pages of {stock.staging.name} were promised, {free} are free")
        return taken

    def free_staging(self, stock: Stock, pages: list[int]) -> None:
        """Give staging pages back, and let those that wait for them look again."""
        stock.staging.free(pages)
        self.news += 1

    def keep_staging(
        self, stock: Stock, keys: list[bytes], pages: list[int], *, read: bool = True, before: bytes = b""
    ) -> None:
        """Verified pages that nobody needs any more: to the host tier or the page cache, or free.

        `read`: they came from the store, which is what a page cache keeps. `before` is the key of the page in front.
        """
        stock.host.keep(keys, pages, read=read, before=before)
        self.news += 1
