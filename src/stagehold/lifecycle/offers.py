"""Which pages are offered to the store, and when: the three policies, and what is offered again.

Write-through offers at publication, selective at the second use, write-back when the pages are about to leave the
device. What was refused or dropped is offered by the next request that uses it. Whether an offer is admitted is for
the gates of *write*; this only makes the intents, as runs of pages that are not on their way.
"""

from __future__ import annotations

from collections.abc import Iterator
from logging import getLogger

from stagehold.cache.components.base import Span
from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import RequestData, WriteData
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine, SpanKey
from stagehold.specs.outcomes import Offer, WindowWrites, WritePolicy
from stagehold.specs.write import WriteState

LOG = getLogger("stagehold")

LEAVING_SHARE = 4
"""Write-back has a quarter of a device pool free or safe: a long prompt's worth on the smallest pool that makes sense,
so that its copies have ended when the room is asked for, and most of what may stay is not written."""

FULL_SHOUTS, FULL_SHOUT_EVERY = 3, 1000
"""Refusals for a full backlog that are reported at once, and then each thousandth: the cap is twice the device pool,
so that reaching it means that writes do not leave."""

SMALL_SHARE = 4
"""A write of at most a quarter of the largest piece is a small one."""


class Offers:
    """Makes the intents of one engine."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._full = 0
        self._made = 0
        self._seen = -1  # what `changes` of the tree was when those about to leave were last offered
        self._seen_all = -1  # the same of all that is held back

    @property
    def _late(self) -> bool:
        return self.core.config.write_policy is WritePolicy.WRITE_BACK

    # When

    def published(self, data: RequestData, first: int, last: int) -> None:
        """Pages [first, last) of a request have entered the tree."""
        match self.core.config.write_policy:
            case WritePolicy.WRITE_THROUGH:
                self._offer(data, self._uncovered_from(data.chain, first), last)
            case WritePolicy.WRITE_BACK:
                self._hold_back(data, first, last)
            case WritePolicy.WRITE_THROUGH_SELECTIVE:
                pass

    def matched(self, data: RequestData) -> None:
        """A request was admitted with a hit: the second use of its pages, and a new chance for those not written."""
        core, last = self.core, data.published
        if not (core.serves and last):
            return
        first = self._uncovered_from(data.chain, last)
        if self._late:
            self._hold_back(data, first, last)
            return
        if first < last:
            self._offer(data, first, last)
        for stock in core.stocks.others:
            reach = core.stocks.part(stock.name).reach(last)
            if reach < first:
                self._offer_resident(stock, data.chain, data.namespace, Span(reach, first), only_new=True)
        core.settle()

    def leaving(self) -> None:
        """Write-back: offer what the next evictions would take, as far as the backlog has room."""
        core = self.core
        if not self._late or not core.serves or core.store_open or self._seen == core.tree.changes:
            return
        self._count_gone()
        was, whole = self._state, True
        for slots in (slots for stock in core.stocks for slots in self._going(stock)):
            whole = self._offer_slots(slots) and whole
            if not (whole or core.quotas.on):  # full for everybody
                break
        self._seen = core.tree.changes if whole or self._is_futile(was) else -1

    def _going(self, stock: Stock) -> list[list[int]]:
        """Slots of the pages that the next evictions of a component would take, with all that leads to them."""
        short = max(1, stock.device.size // LEAVING_SHARE) - stock.device.free_count
        return self.core.tree.next_out(short, stock.name) if short > 0 else []

    @property
    def _state(self) -> tuple[int, int]:
        """Intents made so far, and pages that are held back."""
        return self._made, len(self.core.held_back.pages)

    def _is_futile(self, was: tuple[int, int]) -> bool:
        """Whether intents were made and all pages are held back still: what has to be stored before them is forgotten.

        As long as the tree stays what it is, the next try would only write the same again.
        """
        made, held = was
        return self._made > made and len(self.core.held_back.pages) >= held

    def held_back(self) -> None:
        """Write-back, when the engine drains: offer all that nobody has, as far as the backlog has room."""
        core = self.core
        if not self._late or not core.attached or self._seen_all == core.tree.changes:
            return
        self._count_gone()
        was = self._state
        self._offer_slots(list(core.held_back.pages))
        self._seen_all = core.tree.changes if self._is_futile(was) else -1

    # Write-back

    def _hold_back(self, data: RequestData, first: int, last: int) -> None:
        """Nobody writes these pages yet; remember what they are until they are about to leave."""
        core = self.core
        if not core.config.tier or first == last:
            return
        self._count_gone()
        for page, slot in enumerate(core.tree.slots(data.chain, first, last), start=first):
            if not core.on_its_way(core.stocks.spine, data.chain.page_key(page)):
                core.held_back.pages[slot] = (data.chain, data.namespace, page)

    def _count_gone(self) -> None:
        """Pages that were evicted before anybody offered them."""
        self.core.held_back.forget(self.core.tree.drain_gone())

    def _offer_slots(self, slots: list[int]) -> bool:
        """Offer the held back pages of these slots with all that leads to them; False where the backlog is full.

        From the last slot on, since an offer of a page brings those before it. Where tenants have quotas, the backlog
        may be full for one, and have room for another.
        """
        held, full = self.core.held_back.pages, set[bytes]()  # the tenants that have no room
        for slot in reversed(slots):
            if slot in held and held[slot][1] not in full and not self._offer_slot(slot):
                full.add(held[slot][1])
                if not self.core.quotas.on:
                    break
        return not full

    def _offer_slot(self, slot: int) -> bool:
        """One of them; False where not all of it found room."""
        core, held = self.core, self.core.held_back.pages
        chain, namespace, page = held[slot]
        if core.on_its_way(core.stocks.spine, chain.page_key(page)):
            del held[slot]
            return True
        first = self._uncovered_from(chain, page + 1)
        room = core.config.backlog_pages - core.ledger.totals["backlog"] - core.quotas.backlog.for_others(namespace)
        if room <= 0:
            return False
        last = min(page + 1, first + room)
        self.offer_span(chain, namespace, first, last)
        core.settle()
        for one, offered in zip(range(first, last), core.tree.slots(chain, first, last), strict=True):
            if core.on_its_way(core.stocks.spine, chain.page_key(one)):
                held.pop(offered, None)
        return slot not in held

    # What

    def _offer(self, data: RequestData, first: int, last: int) -> None:
        if self.core.config.tier:
            self.offer_span(data.chain, data.namespace, first, last)
            self.core.settle()

    def _uncovered_from(self, chain: Chain, first: int) -> int:
        """The first of the pages before `first` that no write has brought or brings: refused once, offered again."""
        core = self.core
        while core.serves and first and not core.on_its_way(core.stocks.spine, chain.page_key(first - 1)):
            first -= 1
        return first

    def offer_span(self, chain: Chain, namespace: bytes, first: int, last: int) -> None:
        """Offer live pages [first, last): those of the component that carries the tree, then what others have."""
        core = self.core
        self._offer_runs(core.stocks.spine, chain, namespace, Span(first, last))
        for stock in core.stocks.others:
            start = self._stored_from(stock, first, last)
            self._offer_resident(stock, chain, namespace, Span(start, last))

    def _stored_from(self, stock: Stock, first: int, last: int) -> int:
        """First page of a component that is to be stored of what is published at once."""
        if self.core.stocks.configs[stock.name].writes is WindowWrites.ALL:
            return first
        return max(first, self.core.stocks.part(stock.name).reach(last))

    def _offer_resident(
        self, stock: Stock, chain: Chain, namespace: bytes, span: Span, *, only_new: bool = False
    ) -> None:
        for found in self.core.tree.resident(chain, span.start, span.end, stock.name):
            self._offer_runs(stock, chain, namespace, found, only_new=only_new)

    def _offer_runs(self, stock: Stock, chain: Chain, namespace: bytes, span: Span, *, only_new: bool = False) -> None:
        """The pages that are not on their way, in pieces that staging can give; or all, to be told why not."""
        size = self.core.quotas.piece(stock)
        pieces = [Span(a, min(run.end, a + size)) for run in self._runs(stock, chain, span)
                  for a in range(run.start, run.end, size)]  # fmt: skip
        for piece in pieces or ([] if only_new else [span]):
            keys = tuple(stock.keys(chain, piece.start, piece.end))
            self.offer(WriteData(chain, namespace, piece.start, piece.end, keys, stock.name))

    def _runs(self, stock: Stock, chain: Chain, span: Span) -> Iterator[Span]:
        """Maximal runs of pages that are neither there nor on their way."""
        start = span.start
        for page in range(span.start, span.end):
            if self.core.on_its_way(stock, stock.key(chain.page_key(page))):
                if start < page:
                    yield Span(start, page)
                start = page + 1
        if start < span.end:
            yield Span(start, span.end)

    def offer(self, data: WriteData) -> Machine:
        """One intent, told by the gates what becomes of it."""
        core = self.core
        self._made += 1
        stock = core.stocks.by_name[data.component]
        data.lane = data.namespace if core.quotas.on else b""
        data.small = data.pages * SMALL_SHARE <= stock.piece
        if stock is core.stocks.spine and data.first:
            data.parent = data.chain.page_key(data.first - 1)
        write: Machine = core.steps.write.birth(data, SpanKey(data.namespace, data.keys[-1], data.first, data.last))
        outcome = core.steps.write.offer(write)
        if write.state is WriteState.QUEUED:
            core.writes[write.number] = write
        elif outcome is Offer.FULL:
            fits_alone = core.ledger.totals["backlog"] + data.pages <= core.config.backlog_pages
            core.quotas.refuse("backlog", fits_alone=fits_alone)
            if not fits_alone:
                self._shout(data)
        return write

    def _shout(self, data: WriteData) -> None:
        self._full += 1
        if self._full <= FULL_SHOUTS or self._full % FULL_SHOUT_EVERY == 0:
            LOG.error(
                "the write backlog is full, since the store takes less than is written, or by a bug here: "
                "%d of %d pages wait, %d more are refused; refusal number %d",
                self.core.ledger.totals["backlog"], self.core.config.backlog_pages, data.pages, self._full,
            )  # fmt: skip
