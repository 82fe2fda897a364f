"""Rules of *write*: from published pages to an acknowledged copy in the store.

An intent is a span of keys, resolved on the live tree when it starts, so splits need no repair. Loads keep
priority by cap and reserve. Only an acknowledged put teaches a belief and wakes retries.
"""

from __future__ import annotations

from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import WriteData
from stagehold.lifecycle.operations import Kind
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.stocks import Stock, for_writes
from stagehold.machines import Machine
from stagehold.specs.outcomes import Copied, Offer, PutEnded, Start

HEAD_SHIFT, PART_SHIFT = 32, 56
"""Where a record's detail has the tokens that were acknowledged besides, and the number of the component."""

BACK_OFF_TICKS = 8
"""Ticks before a failed put is tried again, doubled for each further try: long enough for a hiccup to pass, short
against `write_wait_limit`."""


def payload(w: Machine) -> WriteData:
    """The write's own record."""
    data: WriteData = w.data
    return data


class WriteRules:
    """Decisions `offer`, `start`, `copied`, `put_ended`; effects that copy, put and free."""

    def __init__(self, core: Core, retries: RetryRules) -> None:
        self.core = core
        self.retries = retries

    def _is_covered(self, data: WriteData) -> bool:
        """Whether what a page needs to be of use is on its way: its parent, or the page that a component belongs to."""
        spine = self.core.stocks.spine
        if data.component != spine.name:
            return self.core.on_its_way(spine, data.chain.page_key(data.last - 1))
        return data.first == 0 or self.core.on_its_way(spine, data.chain.page_key(data.first - 1))

    def _stock(self, data: WriteData) -> Stock:
        return self.core.stocks.by_name[data.component]

    # Decisions

    def offer(self, w: Machine, _arg: Any) -> Offer:
        """The gates, in the order of the table."""
        core, data = self.core, payload(w)
        if not core.serves:
            return Offer.OFF
        if data.last > data.chain.n_pages:
            return Offer.KEYLESS
        stock = self._stock(data)
        if all(core.on_its_way(stock, key) for key in data.keys):
            return Offer.BELIEVED if core.has_arrived(stock, data.keys[-1]) else Offer.IN_FLIGHT
        if not self._is_covered(data):
            return Offer.UNCOVERED
        others = core.quotas.backlog.for_others(data.namespace)
        if core.ledger.totals["backlog"] + data.pages + others > core.config.backlog_pages:
            return Offer.FULL
        return Offer.QUEUE if data.pages <= stock.write_share else Offer.NEVER_FITS

    def _allowance(self, stock: Stock) -> int:
        """Staging that writes may have now: max(0.2 x staging, staging - loads - staging / 10), in pages."""
        loads = stock.staging.used - stock.host.reclaimable - stock.written
        return for_writes(stock.size, loads)

    def start(self, w: Machine, _arg: Any) -> Start:
        """GONE when no page of it is live and none is hosted; BLOCKED while loads, pacing or the breaker forbid it."""
        core, data = self.core, payload(w)
        if self.is_gone(w):
            return Start.GONE
        hosted, live = self._is_hosted(data), self._live_end(data)
        if core.store_open or not core.serves or data.not_before > core.clock.tick:
            return Start.BLOCKED
        if hosted:
            lent = core.may_be_lent(self._stock(data), data.keys, data.namespace)
            return Start.HOSTED if lent else Start.BLOCKED
        # What would be copied is what is still live: the tail of the intent may have been evicted.
        return Start.COPY if self._has_room(data, live) else Start.BLOCKED

    def is_gone(self, w: Machine) -> bool:
        """Whether there is nothing left to write, or nothing that it would be of use to."""
        data = payload(w)
        return not self._is_covered(data) or (self._live_end(data) <= data.first and not self._is_hosted(data))

    def _has_room(self, data: WriteData, live: int) -> bool:
        core, stock = self.core, self._stock(data)
        if not core.quotas.may_write(stock, data.namespace, data.pages, self._allowance(stock)):
            return False
        if data.pages > core.staging_room(stock, data.namespace):
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
        """Whether there are bytes in host memory that a store could be given."""
        return self.core.attached and self._stock(data).hosts(data.chain, data.first, data.last)

    def copied(self, w: Machine, _arg: Any) -> Copied:
        """Has anybody told us to stop meanwhile, and is there a store?"""
        if w.data.unwanted or not self.core.serves:
            return Copied.UNWANTED
        return Copied.WANTED if self.core.attached else Copied.KEPT

    def put_ended(self, w: Machine, good: int) -> PutEnded:
        """Only a put of every page is a success; tries are bounded. `good` counts those in front."""
        if good == payload(w).pages:
            return PutEnded.STORED
        return PutEnded.FAILED if w.tries + 1 < self.core.limits.tries else PutEnded.SPENT

    # Effects

    def enqueue(self, w: Machine, _arg: Any) -> int:
        """Charge the backlog; the pages are now on their way."""
        core, data = self.core, payload(w)
        core.quotas.enter(data.namespace, core.clock.tick)
        core.ledger.take("backlog", w.number, data.namespace, data.pages)
        core.beliefs.depart(data.keys)
        data.since = core.clock.tick
        core.backlog.enter(w, now=core.clock.tick)
        core.news += 1
        return self._told(data, data.pages)

    def _told(self, data: WriteData, pages: int, acknowledged: int = 0) -> int:
        """A record's detail: tokens, tokens that were acknowledged besides, and the component's number."""
        size = self.core.config.page_size
        return pages * size | (acknowledged * size) << HEAD_SHIFT | self._stock(data).index << PART_SHIFT

    def refuse(self, w: Machine, _arg: Any) -> int:
        """Not admitted; the row says why, the record how much."""
        return self._told(w.data, w.data.pages)

    def copy(self, w: Machine, _arg: Any) -> int:
        """Copy what is still live to staging; its tail may have been evicted meanwhile, and is given up here."""
        core, data = self.core, payload(w)
        stock, live = self._stock(data), self._live_end(data)
        if core.alone:  # no store has its head: what makes room for the tail must not be the head
            front = 0 if stock is core.stocks.spine else core.stocks.part(stock.name).reach(data.first)
            stock.host.renew(stock.keys(data.chain, front, data.first))
        pages = core.allocate_staging(stock, data.namespace, live - data.first)
        core.backlog.leave(w)
        lost = self._shorten(w, live)
        firsts = {} if stock is core.stocks.spine else {stock.name: data.first}
        data.span = core.tree.hold_span(data.chain, data.first, data.last, firsts=firsts)
        self._take_staging(w, pages)
        data.operation = core.begin(Kind.COPY, w.number, lambda n: core.unsent.append((n, w.number))).number
        return self._told(data, lost)

    def send_copies(self) -> None:
        """Send off the copies of this tick, all of a component in one; their sources are under their IO tickets."""
        core = self.core
        if not core.unsent:
            return
        sources: dict[str, tuple[list[int], list[int]]] = {}
        for _, number in core.unsent:
            data = payload(core.writes[number])
            slots, pages = sources.setdefault(data.component, ([], []))
            slots += core.tree.slots(data.chain, data.first, data.last, data.component)
            pages += data.staging
        for name, (slots, pages) in sources.items():
            core.happened.copied_out(name, len(pages))
            if name in core.bytes:
                core.bytes[name].save(slots, pages)
        for operation, _ in core.unsent:
            core.copies.sent(operation, core.clock.tick)
        core.unsent.clear()

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
        """The bytes are in the host tier or the page cache: share them and put at once."""
        self.core.backlog.leave(w)
        self._take_staging(w, self._stock(w.data).host.borrow(w.data.keys))
        self._begin_put(w)

    def _take_staging(self, w: Machine, pages: list[int]) -> None:
        core, data = self.core, payload(w)
        data.staging = pages
        self._count_written(data, len(pages))
        own = len(pages) if data.component == core.stocks.spine.name else 0
        core.ledger.take("staging", w.number, data.namespace, own)
        core.ledger.take("io", w.number, data.namespace)

    def _count_written(self, data: WriteData, pages: int) -> None:
        stock, quotas = self._stock(data), self.core.quotas
        stock.written += pages
        quotas.count(quotas.writes[stock.index], data.namespace, pages)

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

        def send(number: int) -> None:
            core.store_for(number, data.namespace).put(number, names, buffers, core.clock.tick)

        data.operation = core.begin(Kind.PUT, w.number, send, len(names)).number

    def stored(self, w: Machine, _good: int) -> int:
        """Teach, wake, and let the bytes stay in the host tier where there is one."""
        data = payload(w)
        self._release(w, keep=True)
        self._unqueue(w)
        self._acknowledge(data.keys)
        return self._told(data, data.pages)

    def keep(self, w: Machine, _arg: Any) -> int:
        """The bytes stay in host memory. No store has them, so nothing is believed and nobody is woken."""
        self._end_copy(w)
        self._release(w, keep=True)
        self._unqueue(w)
        return self._told(w.data, w.data.pages)

    def _acknowledge(self, keys: tuple[bytes, ...]) -> None:
        self.core.beliefs.teach(keys)
        self.retries.wake(list(keys))

    def back_off(self, w: Machine, good: int) -> int:
        """Try again later, without the pages that were acknowledged; staging is not sat on between tries."""
        core, data = self.core, payload(w)
        self._release(w, keep=core.is_tier)
        self._keep_head(w, good)
        pause = BACK_OFF_TICKS << w.tries
        data.not_before = core.clock.tick + pause
        core.clock.call(pause)
        core.backlog.enter(w, now=core.clock.tick)
        return self._told(data, good)

    def _keep_head(self, w: Machine, good: int) -> None:
        """The first `good` pages are stored: the intent is about the others now."""
        core, data = self.core, payload(w)
        if good == 0:
            return
        head, data.keys, data.first = data.keys[:good], data.keys[good:], data.first + good
        data.parent = head[-1] if data.component == core.stocks.spine.name else b""
        core.beliefs.arrive(head)
        core.ledger.change("backlog", w.number, data.pages)
        self._acknowledge(head)

    def give_up(self, w: Machine, good: int | None) -> int:
        """Give everything back. What a last try has acknowledged, `good` pages, is believed; the rest is dropped."""
        if w.data.span is not None:
            self._end_copy(w)
        self._release(w, keep=good is not None and self.core.is_tier)
        self._keep_head(w, good or 0)
        self._unqueue(w)
        return self._told(w.data, w.data.pages, good or 0)

    def unqueue(self, w: Machine, _arg: Any) -> int:
        """The intent is dropped; the record says how many tokens."""
        self._unqueue(w)
        return self._told(w.data, w.data.pages)

    def _unqueue(self, w: Machine) -> None:
        core, data = self.core, payload(w)
        core.backlog.leave(w)
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
        """The put is over; what it did is not believed. A tier keeps the bytes, unless all was to be let go of."""
        core = self.core
        self._release(w, keep=core.is_tier and not (w.data.unwanted or core.quarantined))
        self.core.writes.pop(w.number, None)

    def _release(self, w: Machine, *, keep: bool) -> None:
        core, data = self.core, payload(w)
        stock = self._stock(data)
        self._count_written(data, -len(data.staging))
        owned = core.ledger.give("staging", w.number)
        core.ledger.give("io", w.number)
        if owned and keep:
            core.keep_staging(stock, list(data.keys), data.staging, read=False, before=data.parent)
        elif owned:
            core.free_staging(stock, data.staging)
        data.staging, data.operation = [], 0
