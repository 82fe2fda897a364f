"""What all rules share: the tree, the pools, the books, the clock, and the queue of a cascade.

`Core` decides nothing. It offers the few acts that more than one rule needs (make room, allocate, name pages) and
holds every machine that is alive, by number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from stagehold.cache.beliefs import Beliefs
from stagehold.cache.components.base import Component
from stagehold.cache.components.build import build
from stagehold.cache.components.full import SPINE
from stagehold.cache.holds import Receipt
from stagehold.cache.keys import ALONE, Chain, RankCoordinates
from stagehold.cache.stores.protocol import Buffer, Store
from stagehold.cache.tree import Tree
from stagehold.lifecycle.backlog import Backlog
from stagehold.lifecycle.clock import Clock
from stagehold.lifecycle.copies import Bytes, Copies, Tensors
from stagehold.lifecycle.data import Plan, RequestData
from stagehold.lifecycle.errors import InvariantBroken
from stagehold.lifecycle.facts import Capacity
from stagehold.lifecycle.held_back import HeldBack
from stagehold.lifecycle.ledger import Ledger
from stagehold.lifecycle.live import LiveView
from stagehold.lifecycle.operations import Kind, Operation, Operations
from stagehold.lifecycle.stocks import Stock, Stocks
from stagehold.machines import Journal, Machine
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.store import StoreState

Step = Callable[[Machine, Any], Any]


class Steppers(Protocol):
    """The bound machines, one attribute each; every event of a machine is a method of its stepper."""

    request: Any
    hold: Any
    write: Any
    store: Any
    attachment: Any
    tick: Any


class Core:
    """Shared parts of one engine; plain objects of one thread."""

    steps: Steppers
    breaker: Machine
    link: Machine

    def __init__(
        self,
        config: EngineConfig,
        journal: Journal,
        copies: Copies,
        tensors: Tensors,
        at: RankCoordinates = ALONE,
    ) -> None:
        self.config = config
        self.limits = config.limits
        self.journal = journal
        self.copies = copies
        self.bytes = tensors  # of every component; none in runs without bytes
        self.at = at  # where this rank stands, as far as it changes the bytes of a page
        self.store: Store | None = None
        self.former: list[Store] = []  # stores that were replaced while operations of theirs were in flight
        self.stocks = Stocks(config, build(config.components, config.page_size))
        self.device, self.staging = self.stocks.spine.device, self.stocks.spine.staging
        self.host = self.stocks.spine.host
        pools = {stock.name: stock.device for stock in self.stocks}
        self.tree = Tree(config.page_size, pools, components=build(config.components, config.page_size))
        self.live: LiveView[Receipt, Receipt] = self.tree  # what decisions look at and protect
        limits = config.limits
        self.beliefs = Beliefs(
            config.belief_capacity, keep_ticks=limits.belief_limit, absent_ticks=limits.absence_limit
        )
        self.ledger = Ledger()
        self.clock = Clock()
        self.pacing = Clock()  # the clock of retries alone: it stands still in a tick that advances none
        self.operations = Operations(config.operation_window)
        self.requests: dict[int, Machine] = {}
        self.holds: dict[int, Machine] = {}
        self.writes: dict[int, Machine] = {}
        self.backlog = Backlog()
        self.held_back = HeldBack()
        self.unsent: list[tuple[int, int]] = []  # copies for the store that go off together: operation and write
        self.visits: dict[int, Plan] = {}
        self.spans: dict[tuple[bytes, int, int], int] = {}  # (last page key, start, last) -> hold that may be joined
        self.committed = 0
        self.hold_pages = 0  # pages of all spans that holds want or own
        self.fetched_tokens = 0  # brought by fetches, since the start
        self.local_tokens = 0  # found in staging instead, since the start
        self.least = self.most = Capacity(0, 0, 0)  # left on the poorest rank and on the richest, at the last exchange
        self.short = Capacity(0, 0, 0)  # what this rank had then and the poorest had not: nobody may count on it
        self.uneven = 0  # exchanges in a row in which not all ranks had the same left
        self.quarantined = False  # the ranks have recorded different things, and go on without the store
        self.news = 0  # moves when a hold parks, a write queues, or something is given back that they may wait for
        self._cascade: deque[tuple[Step, Machine, Any]] = deque()

    # Cascades

    def post(self, step: Step, machine: Machine, arg: Any = None) -> None:
        """Send an event from within a step; it is worked off before any outside event."""
        self._cascade.append((step, machine, arg))

    def settle(self) -> None:
        """Work off the cascade, in the order in which it was posted."""
        while self._cascade:
            step, machine, arg = self._cascade.popleft()
            step(machine, arg)

    def close_span(self, hold: int) -> None:
        """Nobody can join this hold any more."""
        data = self.holds[hold].data
        if self.spans.get((data.key, data.start, data.last)) == hold:
            del self.spans[(data.key, data.start, data.last)]

    def bar(self, owner: int) -> None:
        """The books of a machine are wrong: the request, or those with a claim on the hold, ask the store no more."""
        hold = self.holds.get(owner)
        for number in (owner, *(hold.data.claims if hold is not None else ())):
            if number in self.requests:
                self.requests[number].data.barred = True

    # The component that carries the tree

    @property
    def tensors(self) -> Bytes | None:
        """Its tensors, where bytes are attached."""
        return self.bytes.get(SPINE)

    @property
    def reserved(self) -> int:
        """Device pages promised to committed requests and not yet allocated."""
        return self.stocks.spine.reserved

    @reserved.setter
    def reserved(self, pages: int) -> None:
        self.stocks.spine.reserved = pages

    @property
    def write_pages(self) -> int:
        """Staging pages that writes own."""
        return self.stocks.spine.written

    @write_pages.setter
    def write_pages(self, pages: int) -> None:
        self.stocks.spine.written = pages

    # The store

    @property
    def attached(self) -> bool:
        """Whether a store is in use."""
        return self.link.state is AttachmentState.ATTACHED

    @property
    def store_open(self) -> bool:
        """Whether the breaker forbids asking the store."""
        return self.breaker.state in (StoreState.OPEN, StoreState.PROBING)

    def begin(self, kind: Kind, owner: int, start: Callable[[int], None], keys: int = 0) -> Operation:
        """A new operation over `keys` pages of the store (a copy has none), of the current epoch of the breaker."""
        return self.operations.begin(kind, owner, start, self.breaker.data.epoch, keys)

    def withdraw(self, number: int) -> bool:
        """End an operation that was never sent off, for want of a place; false if it flies."""
        operation = self.operations.live.get(number)
        return operation is not None and self.operations.withdraw(operation)

    def keys(self, chain: Chain, start: int, last: int) -> list[bytes]:
        """Page keys of pages [start, last)."""
        return self.stocks.spine.keys(chain, start, last)

    def buffers(self, stock: Stock, pages: Iterable[int]) -> list[Buffer]:
        """The bytes of staging pages; empty views when no tensors are attached."""
        bytes_of = self.bytes.get(stock.name)
        if bytes_of is None:
            return [memoryview(bytearray()) for _ in pages]
        return [bytes_of.page(page) for page in pages]

    def matches(self, chain: Chain, limit: int) -> tuple[int, int]:
        """Pages of the FULL and of the joint match; one look where no component gates a match."""
        live = self.live.full_match(chain, limit)
        return live, self.live.joint_match(chain, limit) if self.stocks.gates else live

    # Room

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
        """The same on the rank that has the fewest: what every decision asks for."""
        return self.own_room() - self.short.device

    def capacity(self) -> Capacity:
        """What this rank has left; on equal ranks all have the same."""
        left = [(stock.staging_free(), self.own_room_of(stock)) for stock in self.stocks.others]
        pins = self.config.pin_cap - self.tree.pinned
        beside = [pages for pair in left for pages in pair]
        return Capacity(self.stocks.spine.staging_free(), pins, self.own_room(), *beside)

    def room_of(self, stock: Stock) -> int:
        """The same for any component."""
        return self.own_room_of(stock) - self.short.of(stock.index)[1]

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

    def _read_from(self, part: Component, chain: Chain, pages: int) -> int:
        """First page that a use at boundary `pages` can read of a component without meeting a hole."""
        spans = self.tree.resident(chain, part.reach(pages), pages, part.name)
        return spans[-1].start if spans and spans[-1].end == pages else pages

    def in_reach(self, stock: Stock, chain: Chain, pages: int) -> list[int]:
        """Slots that a use ending at boundary `pages` reads of a component: those without a hole before it."""
        first = self._read_from(self.stocks.part(stock.name), chain, pages)
        return self.tree.slots(chain, first, pages, stock.name) if first < pages else []

    def allocate(self, stock: Stock, slots: int) -> list[int]:
        """`slots` slots of any component, evicting as needed; the caller has looked at the room."""
        if stock is self.stocks.spine:
            return self.allocate_device(slots)
        if stock.device.free_count < slots:
            self.tree.evict(slots - stock.device.free_count, stock.name)
        taken = stock.device.alloc(slots)
        if taken is None:
            can = f"{stock.device.free_count} free, {self.tree.evictable_slots(stock.name)} evictable"
            raise InvariantBroken(f"{slots} {stock.name} slots were promised, {can}")
        return taken

    def allocate_device(self, pages: int) -> list[int]:
        """`pages` slots, evicting as needed. The caller has looked at the room; failing here is a bug."""
        if self.device.free_count < pages:
            self.tree.evict(pages - self.device.free_count)
        slots = self.device.alloc(pages)
        if slots is None:
            raise InvariantBroken(
                f"{pages} device pages were promised, {self.device.free_count} free, {self.tree.evictable} evictable"
            )
        return slots

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

    def staging_free(self) -> int:
        """Staging pages that can be had now on every rank, counting what the host tier would give up."""
        return self.staging.free_count + self.host.reclaimable - self.short.staging

    def staging_free_of(self, stock: Stock) -> int:
        """The same for any component."""
        return stock.staging_free() - self.short.of(stock.index)[0]

    def allocate_staging(self, stock: Stock, pages: int) -> list[int]:
        """`pages` staging pages; the caller has looked at `staging_free_of`."""
        stock.host.reclaim(pages)
        taken = stock.staging.alloc(pages)
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
