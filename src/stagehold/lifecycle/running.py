"""Requests that run: room for their tokens, and the publication of what they computed."""

from __future__ import annotations

from numpy.typing import ArrayLike

from stagehold.cache.errors import CacheRefused
from stagehold.lifecycle import inputs
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Extension, NoRoom, RequestData
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.offers import Offers
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine


class Running:
    """What a scheduler does with a committed request. No machine row: the request stays committed."""

    def __init__(self, core: Core, admission: AdmissionRules, offers: Offers) -> None:
        self.core = core
        self.admission = admission
        self.offers = offers

    def extend(self, m: Machine, n_tokens: int, tokens: ArrayLike | None) -> Extension | NoRoom:
        """Slots for `n_tokens` more tokens, from the request's promise first; refused, nothing has changed."""
        core = self.core
        data: RequestData = m.data
        ids = inputs.ids(f"extend({data.handle})", tokens)
        if n_tokens < 1 or len(ids) > n_tokens:
            raise Misuse(f"extend({data.handle}): expected n_tokens >= 1 and at most as many ids, "
                         f"got {n_tokens} and {len(ids)} ids")  # fmt: skip
        if len(ids) and data.chain.n_tokens + len(ids) > data.n_tokens + n_tokens:
            raise Misuse(f"extend({data.handle}): ids of tokens {data.chain.n_tokens} and on, "
                         f"but there is room up to token {data.n_tokens + n_tokens}")  # fmt: skip
        if data.n_tokens + n_tokens > core.config.largest_request_tokens:
            raise Misuse(f"extend({data.handle}): {data.n_tokens} + {n_tokens} tokens are more than "
                         f"largest_request_tokens={core.config.largest_request_tokens}")  # fmt: skip
        if core.stocks.others and -(-n_tokens // core.config.page_size) > core.config.chunk_pages:
            raise Misuse(f"extend({data.handle}): {n_tokens} tokens are more than "
                         f"chunk_tokens={core.config.chunk_tokens}")  # fmt: skip
        need = max(0, -(-(data.n_tokens + n_tokens) // core.config.page_size) - len(data.slots))
        promised = min(need, data.reserve)
        if need - promised > core.room():
            return NoRoom(need, core.room() + data.reserve)
        self._pass_on(data)
        short = self._short_share(data, len(data.slots) + need)
        if short is not None:
            return short
        if len(ids):
            try:
                data.chain.extend(ids)
            except CacheRefused as error:
                raise Misuse(f"extend({data.handle}): {error}") from error
        core.gate.computes(min(n_tokens, max(0, data.prompt_tokens - data.n_tokens)))
        slots = core.allocate_device(need)
        data.slots.extend(slots)
        core.reserved -= promised
        data.reserve -= promised
        for stock in core.stocks.others:
            self._grow(stock, data)
        data.n_tokens += n_tokens
        self._recount(m)
        return Extension(tuple(slots))

    def _pass_on(self, data: RequestData) -> None:
        """The next token may see a window that begins behind some of what was published: that is given up."""
        before = max(data.passed, data.published)
        data.passed = data.n_tokens // self.core.config.page_size
        parts = self.core.stocks.parts
        if data.passed > before and any(part.per_page and part.reach(before) < data.published for part in parts):
            self.admission.move_lock(data, data.published, runs=True)
        for stock in self.core.stocks.others:
            data.shares[stock.name].passed(data.passed)
            self.admission.recount_share(stock, data)

    def _short_share(self, data: RequestData, pages: int) -> NoRoom | None:
        """Why another component cannot follow to `pages` pages; None if all can."""
        for stock in self.core.stocks.others:
            share = data.shares[stock.name]
            # What is outlived goes back to the pool, and to what is promised, alike.
            want, promised = share.wants(pages), share.reserve + len(share.outlived(data.passed))
            if want - promised > self.core.room_of(stock):
                return NoRoom(want, promised + self.core.room_of(stock))
        return None

    def _grow(self, stock: Stock, data: RequestData) -> None:
        """Another component follows: what the next token cannot see any more goes first."""
        share = data.shares[stock.name]
        gone = share.outlived(data.passed)
        stock.device.free(gone)
        share.drop(gone)
        share.grow(self.core.allocate(stock, share.wants(len(data.slots))))
        self.admission.recount_share(stock, data)

    def _recount(self, m: Machine) -> None:
        data: RequestData = m.data
        self.core.ledger.change("slots", m.number, data.reserve + len(data.slots) - data.published)

    def publish(self, m: Machine, upto: int) -> None:
        """Whole pages below token `upto`, whose ids are known, enter the tree under the request's lock."""
        core = self.core
        data: RequestData = m.data
        if not 0 <= upto <= data.n_tokens:
            raise Misuse(f"publish({data.handle}): {upto} tokens, but slots were given for {data.n_tokens}")
        first, last = data.published, min(upto, data.chain.n_tokens) // core.config.page_size
        if last <= first:
            return
        others = {stock.name: self._give(stock, data, first, last, upto) for stock in core.stocks.others}
        data.slots[first:last] = core.insert(data.chain, first, data.slots[first:last], others)
        data.published = last
        self.admission.move_lock(data, last, runs=True)
        for stock in core.stocks.others:
            self._show(stock, data)
        self._recount(m)
        self.offers.published(data, first, last)

    def _give(self, stock: Stock, data: RequestData, first: int, last: int, upto: int) -> list[int]:
        """Slots of another component for the pages that are published; a copy of a state, where there is room.

        Where room for more tokens was given meanwhile, the state may have moved on: it is not that of the last page.
        """
        core, share = self.core, data.shares[stock.name]
        fresh = share.fresh(whole=upto == last * core.config.page_size == data.n_tokens)
        if not core.stocks.part(stock.name).fits(fresh, core.room_of(stock)):
            fresh = 0
        given = share.give(first, last, core.allocate(stock, fresh))
        if given.copies and stock.name in core.bytes:
            core.bytes[stock.name].move(given.copies)
        return given.slots

    def _show(self, stock: Stock, data: RequestData) -> None:
        """The share names what the tree shows within its reach."""
        shown = self.core.in_reach(stock, data.chain, data.published)
        data.shares[stock.name].shown(data.published - len(shown), shown)
        data.shares[stock.name].passed(data.passed)
        self.admission.recount_share(stock, data)

    def matched(self, m: Machine) -> None:
        """The request was admitted: what it uses of the tree may be worth a write."""
        self.offers.matched(m.data)
