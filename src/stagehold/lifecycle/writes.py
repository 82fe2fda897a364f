"""Rules of *write*: from published pages to an acknowledged copy in the store.

An intent is a span of keys, resolved on the live tree when it starts, so splits need no repair. Loads keep
priority by cap and reserve. Only an acknowledged put teaches a belief and wakes retries.
"""

from __future__ import annotations

from typing import Any

from stagehold.cache.components.base import Span
from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import WriteData
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.operations import Kind
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine, SpanKey
from stagehold.specs.outcomes import Copied, HostMode, Offer, PutEnded, Start, WindowWrites
from stagehold.specs.write import WriteState

BACK_OFF_TICKS = 8
"""Ticks before a failed put is tried again, doubled for each further try: long enough for a hiccup to pass, short
against `write_wait_limit`."""


def payload(w: Machine) -> WriteData:
    """The write's own record."""
    data: WriteData = w.data
    return data


class WriteRules:
    """Decisions `offer`, `start`, `copied`, `put_ended`; effects that copy, put and free."""

    def __init__(self, core: Core, launches: LaunchRules) -> None:
        self.core = core
        self.launches = launches

    # Offering

    def offer_span(self, chain: Chain, namespace: bytes, first: int, last: int) -> None:
        """Offer live pages [first, last): those of the component that carries the tree, then what others have."""
        core = self.core
        self._offer_component(core.stocks.spine, chain, namespace, Span(first, last))
        for stock in core.stocks.others:
            start = self._stored_from(stock, first, last)
            for span in core.tree.resident(chain, start, last, stock.name):
                self._offer_component(stock, chain, namespace, span)

    def _stored_from(self, stock: Stock, first: int, last: int) -> int:
        """First page of a component that is to be stored of what is published at once."""
        if self.core.stocks.configs[stock.name].writes is WindowWrites.ALL:
            return first
        return max(first, self.core.stocks.part(stock.name).reach(last))

    def _offer_component(self, stock: Stock, chain: Chain, namespace: bytes, span: Span) -> None:
        """In pieces that staging can give."""
        size = max(1, self._share(stock) // 2)
        for start in range(span.start, span.end, size):
            self._offer_piece(stock, WriteData(chain, namespace, start, min(span.end, start + size), (), stock.name))

    def _offer_piece(self, stock: Stock, data: WriteData) -> None:
        core, chain = self.core, data.chain
        keys = stock.keys(chain, data.first, data.last)
        while keys and self.is_on_its_way(keys[0]):
            data.first += 1
            keys.pop(0)
        while len(keys) > 1 and self.is_on_its_way(keys[-1]):
            data.last -= 1
            keys.pop()
        data.keys = tuple(keys) or tuple(stock.keys(chain, data.last - 1, data.last))
        write = core.steps.write.birth(data, SpanKey(data.namespace, data.keys[-1], data.first, data.last))
        core.steps.write.offer(write)
        if write.state is WriteState.QUEUED:
            core.writes[write.number] = write

    def is_on_its_way(self, key: bytes) -> bool:
        """Whether the page is believed stored, or a write of it is queued or under way."""
        return self.core.beliefs.knows(key) or self.core.beliefs.in_flight(key)

    def _is_covered(self, data: WriteData) -> bool:
        """Whether what a page needs to be of use is on its way: its parent, or the page that a component belongs to."""
        if data.component != self.core.stocks.spine.name:
            return self.is_on_its_way(data.chain.page_key(data.last - 1))
        return data.first == 0 or self.is_on_its_way(data.chain.page_key(data.first - 1))

    def _stock(self, data: WriteData) -> Stock:
        return self.core.stocks.by_name[data.component]

    # Decisions

    def offer(self, w: Machine, _arg: Any) -> Offer:
        """The gates, in the order of the table."""
        core, data = self.core, payload(w)
        if not core.attached:
            return Offer.OFF
        if data.last > data.chain.n_pages:
            return Offer.KEYLESS
        if data.pages == 0:
            return Offer.BELIEVED if core.beliefs.knows(data.keys[-1]) else Offer.IN_FLIGHT
        if not self._is_covered(data):
            return Offer.UNCOVERED
        if core.ledger.totals["backlog"] + data.pages > core.config.backlog_pages:
            return Offer.FULL
        return Offer.QUEUE if data.pages <= self._share(self._stock(data)) else Offer.NEVER_FITS

    def _share(self, stock: Stock) -> int:
        """Staging that writes may have however busy loads are: a fifth, at least one page."""
        return max(1, stock.size // 5)

    def _allowance(self, stock: Stock) -> int:
        """Staging that writes may have now: max(0.2 x staging, staging - loads - staging / 10), in pages."""
        loads = stock.staging.used - stock.host.reclaimable - stock.written
        return max(self._share(stock), stock.size - loads - stock.size // 10)

    def start(self, w: Machine, _arg: Any) -> Start:
        """GONE when no page of it is live and none is hosted; BLOCKED while loads, pacing or the breaker forbid it."""
        core, data = self.core, payload(w)
        hosted = self._is_hosted(data)
        live = self._live_end(data)
        if not hosted and live <= data.first:
            return Start.GONE
        if not self._is_covered(data):
            return Start.GONE
        if core.store_open or not core.attached or data.not_before > core.clock.tick:
            return Start.BLOCKED
        if hosted:
            return Start.HOSTED
        # What would be copied is what is still live: the tail of the intent may have been evicted.
        return Start.COPY if self._has_room(data, live) else Start.BLOCKED

    def _has_room(self, data: WriteData, live: int) -> bool:
        core, stock = self.core, self._stock(data)
        if stock.written + data.pages > self._allowance(stock) or data.pages > core.staging_free_of(stock):
            return False
        if core.live.protect_cost(data.chain, live) > core.room():
            return False
        spine = stock is core.stocks.spine
        return spine or core.tree.unlocked(data.chain, data.first, live, stock.name) <= core.room_of(stock)

    def _live_end(self, data: WriteData) -> int:
        """Where the live pages that begin with the first one end; `first` or less where that has gone."""
        spans = self.core.tree.resident(data.chain, data.first, data.last, data.component)
        return spans[0].end if spans and spans[0].start == data.first else 0

    def _is_hosted(self, data: WriteData) -> bool:
        if self.core.config.host_memory_mode is not HostMode.CACHE:
            return False
        return self._stock(data).hosts(data.chain, data.first, data.last)

    def copied(self, w: Machine, _arg: Any) -> Copied:
        """Has anybody told us to stop meanwhile?"""
        return Copied.UNWANTED if w.data.unwanted or not self.core.attached else Copied.WANTED

    def put_ended(self, w: Machine, good: int) -> PutEnded:
        """Only a put of every page is a success; tries are bounded."""
        if good == payload(w).pages:
            return PutEnded.STORED
        return PutEnded.FAILED if w.tries + 1 < self.core.limits.tries else PutEnded.SPENT

    # Effects

    def enqueue(self, w: Machine, _arg: Any) -> int:
        """Charge the backlog; the pages are now on their way."""
        core, data = self.core, payload(w)
        core.ledger.take("backlog", w.number, data.namespace, data.pages)
        core.beliefs.depart(data.keys)
        core.news += 1
        return data.pages * core.config.page_size

    def refuse(self, w: Machine, _arg: Any) -> int:
        """Not admitted; the row says why, the record how much."""
        return payload(w).pages * self.core.config.page_size

    def copy(self, w: Machine, _arg: Any) -> int:
        """Copy what is still live to staging; its tail may have been evicted meanwhile, and is given up here."""
        core, data = self.core, payload(w)
        stock, live = self._stock(data), self._live_end(data)
        pages = core.allocate_staging(stock, live - data.first)
        lost = self._shorten(w, live)
        firsts = {} if stock is core.stocks.spine else {stock.name: data.first}
        data.span = core.tree.hold_span(data.chain, data.first, data.last, firsts=firsts)
        if stock.name in core.bytes:
            core.bytes[stock.name].save(core.tree.slots(data.chain, data.first, data.last, stock.name), pages)
        self._take_staging(w, pages)
        data.operation = core.begin(Kind.COPY, w.number, lambda n: core.copies.sent(n, core.clock.tick)).number
        return lost * core.config.page_size

    def _shorten(self, w: Machine, live: int) -> int:
        """The intent ends at `live` now; returns the pages given up."""
        core, data = self.core, payload(w)
        lost = max(0, data.last - live)
        if lost:
            core.beliefs.arrive(data.keys[-lost:])
            data.keys, data.last = data.keys[:-lost], live
            core.ledger.change("backlog", w.number, data.pages)
        return lost

    def put_hosted(self, w: Machine, _arg: Any) -> None:
        """The bytes are in the host tier: share them and put at once."""
        self._take_staging(w, self._stock(w.data).host.borrow(w.data.keys))
        self._begin_put(w)

    def _take_staging(self, w: Machine, pages: list[int]) -> None:
        core, data = self.core, payload(w)
        data.staging = pages
        self._stock(data).written += len(pages)
        own = len(pages) if data.component == core.stocks.spine.name else 0
        core.ledger.take("staging", w.number, data.namespace, own)
        core.ledger.take("io", w.number, data.namespace)

    def put(self, w: Machine, _arg: Any) -> None:
        """The device source is released, the put begins."""
        self._end_copy(w)
        self._begin_put(w)

    def _end_copy(self, w: Machine) -> None:
        self.core.tree.release_span(w.data.span)
        w.data.span = None
        self.core.news += 1

    def _begin_put(self, w: Machine) -> None:
        core, data = self.core, payload(w)
        stock = self._stock(data)
        names, buffers = stock.names(data.keys, core.at), core.buffers(stock, data.staging)
        data.operation = core.begin(Kind.PUT, w.number, lambda n: self._send(n, names, buffers), len(names)).number

    def _send(self, number: int, names: list[bytes], buffers: list[Any]) -> None:
        store = self.core.store
        assert store is not None, "a put without a store"
        store.put(number, names, buffers, self.core.clock.tick)

    def stored(self, w: Machine, _good: int) -> int:
        """Teach, wake, and let the bytes stay in the host tier where there is one."""
        core, data = self.core, payload(w)
        self._release(w, keep=True)
        self._unqueue(w)
        core.beliefs.teach(data.keys)
        self.launches.wake(list(data.keys))
        return data.pages * core.config.page_size

    def back_off(self, w: Machine, _good: int) -> None:
        """Try again later; staging is not sat on between tries."""
        self._release(w, keep=False)
        pause = BACK_OFF_TICKS << w.tries
        w.data.not_before = self.core.clock.tick + pause
        self.core.clock.call(pause)

    def give_up(self, w: Machine, _arg: Any) -> int:
        """Give everything back."""
        if w.data.span is not None:
            self._end_copy(w)
        self._release(w, keep=False)
        return self.unqueue(w, None)

    def unqueue(self, w: Machine, _arg: Any) -> int:
        """The intent is dropped; the record says how many tokens."""
        self._unqueue(w)
        return payload(w).pages * self.core.config.page_size

    def _unqueue(self, w: Machine) -> None:
        core, data = self.core, payload(w)
        core.ledger.give("backlog", w.number)
        core.beliefs.arrive(data.keys)
        core.clock.disarm(w)
        core.writes.pop(w.number, None)
        core.news += 1

    def let_drain(self, w: Machine, _arg: Any) -> int:
        """Nobody waits for the put any more; it keeps its buffer until it ends."""
        detail = self.unqueue(w, None)
        self.core.writes[w.number] = w
        if self.core.withdraw(w.data.operation):
            self.core.post(self.core.steps.write.io_ended, w)
        return detail

    def drained(self, w: Machine, _arg: Any) -> None:
        """The put is over; what it did is not believed."""
        self._release(w, keep=False)
        self.core.writes.pop(w.number, None)

    def _release(self, w: Machine, *, keep: bool) -> None:
        core, data = self.core, payload(w)
        stock = self._stock(data)
        stock.written -= len(data.staging)
        owned = core.ledger.give("staging", w.number)
        core.ledger.give("io", w.number)
        if owned and keep:
            core.keep_staging(stock, list(data.keys), data.staging)
        elif owned:
            core.free_staging(stock, data.staging)
        data.staging, data.operation = [], 0
