"""What all rules share: the tree and its pools (`Rooms`), the books, the clocks, and the queue of a cascade.

`Core` decides nothing. It offers the few acts that more than one rule needs (begin an operation, name pages) and
holds every machine that is alive, by number.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from stagehold.cache.beliefs import Beliefs
from stagehold.cache.components.full import SPINE
from stagehold.cache.keys import ALONE, Chain, RankCoordinates
from stagehold.cache.recency import EvictionOrder
from stagehold.cache.stores.protocol import Buffer, Store, assign_tenant, cut_short
from stagehold.lifecycle.backlog import Backlog
from stagehold.lifecycle.clock import Clock
from stagehold.lifecycle.copies import Bytes, Copies, Tensors
from stagehold.lifecycle.data import Plan
from stagehold.lifecycle.gate import Gate
from stagehold.lifecycle.happened import Happened
from stagehold.lifecycle.held_back import HeldBack
from stagehold.lifecycle.ledger import Ledger
from stagehold.lifecycle.operations import Kind, Operation, Operations
from stagehold.lifecycle.rooms import Rooms
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Journal, Machine
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import HostMode
from stagehold.specs.store import StoreState

LOG = logging.getLogger("stagehold")

Step = Callable[[Machine, Any], Any]


class Steppers(Protocol):
    """The bound machines, one attribute each; every event of a machine is a method of its stepper."""

    request: Any
    hold: Any
    write: Any
    store: Any
    attachment: Any
    tick: Any


class Core(Rooms):
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
        *,
        order: EvictionOrder | None = None,
        checked: bool = False,
    ) -> None:
        super().__init__(config, order, checked=checked)
        self.limits = limits = config.limits
        self.is_tier = config.tier and config.host_memory_mode is HostMode.CACHE  # verified bytes stay in host memory
        self.journal = journal
        self.copies = copies
        self.bytes = tensors  # of every component; none in runs without bytes
        self.at = at  # where this rank stands, as far as it changes the bytes of a page
        self.store: Store | None = None
        self.former: list[Store] = []  # stores that were replaced while operations of theirs were in flight
        self.beliefs = Beliefs(
            config.belief_capacity, keep_ticks=limits.belief_limit, absent_ticks=limits.absence_limit
        )
        self.ledger = Ledger()
        if self.quotas.on:
            self.ledger.shares = {"query": self.quotas.lookups, "backlog": self.quotas.backlog}
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
        self.happened = Happened(config)
        self.gate = Gate(config)
        self.quarantined = False  # the ranks have recorded different things, and go on without the store
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

    def count_span(self, namespace: bytes, pages: int) -> None:
        """A hold of the tenant wants or owns so many pages more, or fewer."""
        self.hold_pages += pages
        self.quotas.count(self.quotas.loads, namespace, pages)

    def is_load_full(self, namespace: bytes) -> bool:
        """Whether holds want or own as much of staging as another one of the tenant may be launched for.

        Where tenants have quotas, the first hold of each may always be.
        """
        quotas, limit = self.quotas, self.config.load_limit_pages
        if not quotas.on:
            return self.hold_pages >= limit
        loads = quotas.loads
        if namespace not in loads.used or loads.covers(namespace, 1):
            return False
        return self.hold_pages + loads.for_others(namespace) >= limit

    def span_limit(self, namespace: bytes) -> int:
        """Pages of the longest span that staging can ever give a hold of the tenant, the others being what they are."""
        return self.quotas.staging[0].most(namespace)

    # The component that carries the tree

    @property
    def tensors(self) -> Bytes | None:
        """Its tensors, where bytes are attached."""
        return self.bytes.get(SPINE)

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
    def alone(self) -> bool:
        """Whether host memory serves by itself: it is a tier, and no store is in use, nor was one let go in quarantine.

        After a divergence each rank's copies end in a tick of its own, so that host memory is not the same any more.
        """
        return self.is_tier and not (self.attached or self.quarantined)

    @property
    def serves(self) -> bool:
        """Whether there is anything beside the device to write to and to load from."""
        return self.attached or self.alone

    def has_arrived(self, stock: Stock, key: bytes) -> bool:
        """Whether a page is where writes bring it: believed in the store, or in host memory where that is alone."""
        return stock.host.has(key) if self.alone else self.beliefs.knows(key)

    def on_its_way(self, stock: Stock, key: bytes) -> bool:
        """Whether it is there, or a write of it is queued or under way."""
        return self.beliefs.in_flight(key) or self.has_arrived(stock, key)

    @property
    def store_open(self) -> bool:
        """Whether the breaker forbids asking the store in use."""
        return self.attached and self.breaker.state in (StoreState.OPEN, StoreState.PROBING)

    def begin(self, kind: Kind, owner: int, start: Callable[[int], None], keys: int = 0) -> Operation:
        """A new operation over `keys` pages of the store (a copy has none), of the current epoch of the breaker."""
        return self.operations.begin(kind, owner, start, self.breaker.data.epoch, keys)

    def store_for(self, number: int, namespace: bytes) -> Store:
        """The store, told that operation `number`, which it is asked for next, is of the tenant with this digest."""
        assert self.store is not None, f"operation {number} without a store"
        assign_tenant(self.store, number, namespace)
        return self.store

    def withdraw(self, number: int) -> bool:
        """End an operation that was never sent off, for want of a place; false if it flies."""
        operation = self.operations.live.get(number)
        return operation is not None and self.operations.withdraw(operation)

    def call_off(self, number: int) -> bool:
        """Nobody wants what a fetch brings any more: as `withdraw`, and one that flies ends early if the store can."""
        operation = self.operations.live.get(number)
        if operation is None:
            return False
        if self.operations.withdraw(operation):
            return True
        operation.unwanted = True
        try:
            cut_short(self.store, number, self.clock.tick)
        except AssertionError:
            raise
        except Exception:
            # It goes on to its end then, or runs into its limits.
            LOG.exception("store %r did not cut an operation short", getattr(self.store, "name", None))
        return False

    def keys(self, chain: Chain, start: int, last: int) -> list[bytes]:
        """Page keys of pages [start, last)."""
        return self.stocks.spine.keys(chain, start, last)

    def buffers(self, stock: Stock, pages: Iterable[int]) -> list[Buffer]:
        """The bytes of staging pages; empty views when no tensors are attached."""
        bytes_of = self.bytes.get(stock.name)
        if bytes_of is None:
            return [memoryview(bytearray()) for _ in pages]
        return [bytes_of.page(page) for page in pages]
