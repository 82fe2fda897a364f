"""Rules of *write*: from published pages to an acknowledged copy in the store.

An intent is a span of keys, resolved on the live tree when it starts, so splits need no repair. Loads keep
priority by cap and reserve. Only an acknowledged put teaches a belief and wakes retries.
"""

from __future__ import annotations

from typing import Any

from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import WriteData
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.operations import Kind
from stagehold.machines import Machine, SpanKey
from stagehold.specs.outcomes import Copied, HostMode, Offer, PutEnded, Start
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
        """Offer pages [first, last), which have just been published, in pieces that staging can give."""
        size = max(1, self._share() // 2)
        for start in range(first, last, size):
            self._offer_piece(chain, namespace, start, min(last, start + size))

    def _offer_piece(self, chain: Chain, namespace: bytes, first: int, last: int) -> None:
        core = self.core
        while first < last and self.is_on_its_way(chain.page_key(first)):
            first += 1
        while first < last - 1 and self.is_on_its_way(chain.page_key(last - 1)):
            last -= 1
        keys = tuple(core.keys(chain, first, last)) if first < last else (chain.page_key(last - 1),)
        data = WriteData(chain, namespace, first, last, keys)
        write = core.steps.write.birth(data, SpanKey(namespace, keys[-1], first, last))
        core.steps.write.offer(write)
        if write.state is WriteState.QUEUED:
            core.writes[write.number] = write

    def is_on_its_way(self, key: bytes) -> bool:
        """Whether the page is believed stored, or a write of it is queued or under way."""
        return self.core.beliefs.knows(key) or self.core.beliefs.in_flight(key)

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
        if data.first and not self.is_on_its_way(data.chain.page_key(data.first - 1)):
            return Offer.UNCOVERED
        if core.ledger.totals["backlog"] + data.pages > core.config.backlog_pages:
            return Offer.FULL
        return Offer.QUEUE if data.pages <= self._share() else Offer.NEVER_FITS

    def _share(self) -> int:
        """Staging that writes may have however busy loads are: a fifth, at least one page."""
        return max(1, self.core.config.staging_pages // 5)

    def _allowance(self) -> int:
        """Staging that writes may have now: max(0.2 x staging, staging - loads - staging / 10), in pages."""
        core = self.core
        size = core.config.staging_pages
        loads = core.ledger.totals["staging"] - core.write_pages
        return max(self._share(), size - loads - size // 10)

    def start(self, w: Machine, _arg: Any) -> Start:
        """GONE when no page of it is live and none is hosted; BLOCKED while loads, pacing or the breaker forbid it."""
        core, data = self.core, payload(w)
        hosted = self._is_hosted(data)
        live = core.live.full_match(data.chain, data.last)
        if not hosted and live <= data.first:
            return Start.GONE
        if data.first and not self.is_on_its_way(data.chain.page_key(data.first - 1)):
            return Start.GONE
        if core.store_open or not core.attached or data.not_before > core.clock.tick:
            return Start.BLOCKED
        if hosted:
            return Start.HOSTED
        short = core.write_pages + data.pages > self._allowance() or data.pages > core.staging_free()
        # What would be copied is what is still live: the tail of the intent may have been evicted.
        if short or core.live.protect_cost(data.chain, live) > core.room():
            return Start.BLOCKED
        return Start.COPY

    def _is_hosted(self, data: WriteData) -> bool:
        core = self.core
        if core.config.host_memory_mode is not HostMode.CACHE:
            return False
        return core.host.reach(data.chain, data.first, data.last) == data.last

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
        live = core.live.full_match(data.chain, data.last)
        pages = core.allocate_staging(live - data.first)
        lost = self._shorten(w, live)
        data.span = core.tree.hold_span(data.chain, data.first, data.last)
        if core.tensors is not None:
            core.tensors.save(core.tree.slots(data.chain, data.first, data.last), pages)
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
        self._take_staging(w, self.core.host.borrow(w.data.keys))
        self._begin_put(w)

    def _take_staging(self, w: Machine, pages: list[int]) -> None:
        core, data = self.core, payload(w)
        data.staging = pages
        core.write_pages += len(pages)
        core.ledger.take("staging", w.number, data.namespace, len(pages))
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
        names, buffers = core.names(data.keys), core.buffers(data.staging)
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
        core.write_pages -= len(data.staging)
        owned = core.ledger.give("staging", w.number)
        core.ledger.give("io", w.number)
        if owned and keep:
            core.keep_staging(list(data.keys), data.staging)
        elif owned:
            core.free_staging(data.staging)
        data.staging, data.operation = [], 0
