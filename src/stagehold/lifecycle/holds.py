"""Own the rules of *hold*: one look at the live tree, then buffer, pin and IO together or nothing.

Only equal spans share a hold, and at most one hold of a span can be joined: the one that `core.spans` names. A short
delivery or a cut can shorten a second hold onto a span that has one already. It goes on for the claims that it has,
and nobody joins it; its bytes are as good, and so is the splice of either.

A buffer is freed by the end of IO and by nothing else. Exactly one function gives up what a hold owns
(`_release`), and one tells its claimants (`announce`), after the step that ended it.
"""

from __future__ import annotations

from typing import Any

from stagehold.lifecycle import brought
from stagehold.lifecycle.claims import Ended, Look
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import HoldData, RequestData
from stagehold.lifecycle.operations import Kind
from stagehold.machines import Machine, SpanKey
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Cut, Fetched, HoldEnd, IoCommit, Loss, Thrown

ENDS = {
    HoldState.LOADING: Ended(HoldEnd.SPLICED, Loss.COVERED),
    HoldState.COVERED: Ended(HoldEnd.COVERED, Loss.COVERED),
    HoldState.LOST: Ended(HoldEnd.LOST, Loss.LOST),
    HoldState.EXPIRED: Ended(HoldEnd.EXPIRED, Loss.EXPIRED),
    HoldState.FAILED: Ended(HoldEnd.FAILED, Loss.FAILED),
    HoldState.DROPPED: Ended(HoldEnd.DROPPED, Loss.DROPPED),
}
"""What the claimants of a hold are told, by the state that it went to."""

PASSES_BEFORE_ELDERS_FIRST = 8
"""Younger holds that may take staging past an older one before all of it is kept for the older one. Small fetches
keep the store busy behind a large one; eight of them delay it by about one fetch each at most."""


class HoldRules:
    """Decisions `io_commit`, `fetched`, `cut`; effects that move buffer, pin and IO."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.elders: list[Machine] = []  # holds that staging is kept for, once they were passed too often

    # Decisions

    def look(self, h: Machine) -> Look:
        """What the live tree holds of the span: pages of its FULL and of its joint match."""
        return Look(*self.core.matches(h.data.chain, h.data.last))

    def io_commit(self, h: Machine, look: Look) -> IoCommit:
        """The one look at the live tree before a fetch."""
        core, data = self.core, h.data
        if self._is_oversize(data):
            return IoCommit.OVERSIZE
        if look.joint >= data.last:
            return IoCommit.COVERED
        if look.live < data.start:
            return IoCommit.LOST
        if self._is_head_busy(h, look.joint):
            return IoCommit.HEAD_BUSY
        local = brought.is_local(core.stocks, data, look.live)
        if not local and (core.store_open or not core.attached):
            return IoCommit.STORE_OPEN
        anchor = self.anchor(data, look.live)
        if anchor is IoCommit.PIN_FULL:
            return anchor
        if local:
            return IoCommit.LOCAL if brought.fits_held(core, data, look.live) else IoCommit.NO_STAGING
        return anchor if self._has_staging(h, data.last - look.live) else IoCommit.NO_STAGING

    def _is_oversize(self, data: HoldData) -> bool:
        """Whether the span could not fit in empty staging. What must be brought of others never exceeds a window."""
        return data.last - data.start > self.core.config.staging_pages

    def anchor(self, data: HoldData | RequestData, live: int) -> IoCommit:
        """How the live prefix would be protected: a set-wise charge against the cap, and room for it."""
        core = self.core
        if live == 0:
            return IoCommit.NO_ANCHOR
        pins = core.quotas.pins
        if live > pins.most(data.namespace):
            return IoCommit.TOO_LARGE_TO_PIN
        pinned = core.tree.pinned + core.short.pins + pins.for_others(data.namespace)
        over_cap = pinned + core.live.pin_cost(data.chain, live) > core.config.pin_cap
        if over_cap or core.live.protect_cost(data.chain, live) > core.room():
            return IoCommit.PIN_FULL
        return IoCommit.PINNED

    def _has_staging(self, h: Machine, pages: int) -> bool:
        """Room for `pages` and all that gates a match, beside what is kept for older holds that were passed too often.

        What gates nothing may be left out.
        """
        return brought.fits(self.core, h.data, pages, [elder.data for elder in self.elders if elder is not h])

    def keep_for(self, h: Machine) -> None:
        """The hold was passed too often: what it needs is kept for it, unless it is for an older one of its tenant."""
        quotas = self.core.quotas
        if not any(elder.data.namespace == h.data.namespace or not quotas.on for elder in self.elders):
            self.elders.append(h)

    def tried(self, h: Machine, outcome: IoCommit) -> None:
        """A parked hold was tried; counted where it has to wait, and where that is for other tenants."""
        core, data = self.core, h.data
        core.happened.parked(outcome, (data.last - data.start) * core.config.page_size)
        if not core.quotas.on:
            return
        if outcome is IoCommit.NO_STAGING:
            core.quotas.refuse("staging", fits_alone=data.last - data.start <= core.staging_free())
        if outcome is IoCommit.PIN_FULL:
            live = core.live.full_match(data.chain, data.last)
            fits = core.tree.pinned + core.live.pin_cost(data.chain, live) <= core.config.pin_cap
            core.quotas.refuse("pin", fits_alone=fits and core.live.protect_cost(data.chain, live) <= core.room())

    def _is_head_busy(self, h: Machine, live: int) -> bool:
        """Whether a shorter span over the same head is parked, fetching, ready or planned."""
        data = h.data
        for (key, start, last), number in self.core.spans.items():
            if number == h.number or not live < last <= data.last or last - start >= data.last - data.start:
                continue
            if data.chain.page_key(last - 1) == key:
                return True
        return False

    def fetched(self, h: Machine, good: int) -> Fetched:
        """Verified pages against those asked for, and the threshold. What must be whole leaves no head to keep."""
        if good == h.data.units:
            return Fetched.WHOLE
        return Fetched.HEAD if self._can_keep(h.data, good) else Fetched.NOTHING

    def _can_keep(self, data: HoldData, good: int) -> bool:
        return not data.parts and good >= self.core.config.threshold_pages

    def cut(self, h: Machine, _arg: Any) -> Cut:
        """Is a head verified that is worth keeping?"""
        return Cut.USABLE if self.usable(h) else Cut.HOPELESS

    def usable(self, h: Machine) -> bool:
        """Whether the agreed verified head of a fetch reaches the threshold."""
        operation = self.core.operations.live.get(h.data.operation)
        return self._can_keep(h.data, operation.good if operation is not None else 0)

    # Effects: IO commit

    def fetch(self, h: Machine, look: Look) -> int:
        """Trim the head that the tree holds, take staging and pin, and send the fetch off."""
        core, data = self.core, h.data
        brought.salvage(core, data)
        # What host memory has in front is shared, and only the rest fetched.
        lent = brought.lent(core, data, look.live)
        names, buffers = brought.take(core, data, look.live, lent)
        detail = self._anchor_at(h, look)
        core.ledger.take("staging", h.number, data.namespace, len(data.staging))
        core.ledger.take("io", h.number, data.namespace)

        def send(number: int) -> None:
            core.store_for(number, data.namespace).get_into(number, names, buffers, core.clock.tick)

        operation = core.begin(Kind.FETCH, h.number, send, len(names))
        operation.ready = operation.good = ready = lent - look.live
        data.operation = operation.number
        core.happened.sent(operation.number, data, ready)
        data.fetched = len(data.staging) - ready
        core.fetched_tokens += (len(data.staging) - ready) * core.config.page_size
        core.local_tokens += ready * core.config.page_size
        return detail

    def take_local(self, h: Machine, look: Look) -> int:
        """Every page is in staging already: share them."""
        core, data = self.core, h.data
        brought.salvage_held(core, data)
        detail = self._anchor_at(h, look)
        brought.borrow(core.stocks, data)
        core.ledger.take("staging", h.number, data.namespace, len(data.staging))
        core.local_tokens += len(data.staging) * core.config.page_size
        return detail

    def _anchor_at(self, h: Machine, look: Look) -> int:
        """Pin the anchor (perhaps with an empty receipt) and trim the span to what lies behind it."""
        core, data = self.core, h.data
        pinned = look.live if self.anchor(data, look.live) is IoCommit.PINNED else 0
        data.pin = core.pin(data.chain, pinned, data.namespace)
        core.live.touch(data.chain, look.live if look.resident is None else look.resident)
        core.ledger.take("pin", h.number, data.namespace, pinned)
        data.base = min(look.live, data.last)
        return self._reshape(h, max(data.start, look.joint), data.last, Loss.TRIMMED)

    def _reshape(self, h: Machine, start: int, last: int, reason: Loss) -> int:
        """The span is now [start, last): its claims lose the rest, for one reason; returns the record's detail."""
        core, data = self.core, h.data
        tokens = (data.last - data.start - (last - start)) * core.config.page_size
        core.close_span(h.number)
        core.count_span(data.namespace, last - start - (data.last - data.start))
        data.start, data.last, data.key = start, last, data.chain.page_key(last - 1)
        # Where another hold of this span can be joined already, this one cannot.
        core.spans.setdefault((data.key, start, last), h.number)
        for number in data.claims:
            core.requests[number].data.claim_tokens -= tokens
        return core.ledger.lose(tokens * len(data.claims), reason)

    # Effects: the end of a fetch

    def verified(self, h: Machine, good: int) -> int:
        """Every page is there and right; the record says how many tokens."""
        self._end_io(h)
        return good * self.core.config.page_size

    def _end_io(self, h: Machine) -> None:
        h.data.operation = 0
        self.core.ledger.give("io", h.number)

    def keep_head(self, h: Machine, good: int) -> int:
        """Keep what was verified; the tail is not there, so nobody believes in it any more."""
        data = h.data
        self._end_io(h)
        self._forget(h, good)
        tail = data.staging[good:]
        del data.staging[good:]
        self.core.ledger.change("staging", h.number, good)
        self.core.free_staging(self.core.stocks.spine, tail)
        return self._reshape(h, data.start, data.start + good, Loss.FAILED)

    def _forget(self, h: Machine, good: int) -> None:
        """Beliefs and known ends beyond the first `good` pages that were asked for were wrong."""
        core, data = self.core, h.data
        core.beliefs.unteach(brought.all_keys(core.stocks, data)[good:])
        for number in data.claims:
            core.requests[number].data.known_end = 0 if data.parts else data.base + good

    def fail(self, h: Machine, good: int) -> None:
        """Too little came back."""
        self._forget(h, good)
        self._end_io(h)
        self._unpin(h)
        self._release(h)
        self.core.happened.over(h.number, Thrown.FAILED)
        self.core.post(self.announce, h)

    def cut_tail(self, h: Machine, _arg: Any) -> int:
        """Keep the verified head; the tail and the IO that still writes to it go to a hold born draining."""
        core, data = self.core, h.data
        operation = core.operations.live[data.operation]
        good = operation.good
        middle = data.start + good
        tail = HoldData(data.chain, data.namespace, middle, data.last, data.key)
        tail.base, tail.staging, tail.operation = middle, data.staging[good:], operation.number
        core.happened.cut(operation.number, h.number, good - operation.ready)
        birth = SpanKey(data.namespace, data.key, middle, data.last)
        drain = core.steps.hold.birth(tail, birth, HoldState.DRAINING)
        core.holds[drain.number] = drain
        operation.owner = drain.number
        self._end_io(h)
        core.ledger.change("staging", h.number, good)
        core.ledger.take("staging", drain.number, data.namespace, len(tail.staging))
        core.ledger.take("io", drain.number, data.namespace)
        core.count_span(data.namespace, data.last - middle)
        del data.staging[good:]
        self._let_drain(drain)
        return self._reshape(h, data.start, middle, Loss.CUT)

    def abandon_expired(self, h: Machine, _arg: Any) -> None:
        """Nothing usable in time: the IO keeps the buffer, the claimants are told."""
        self._abandon(h, Ended(HoldEnd.EXPIRED, Loss.EXPIRED))

    def abandon_dropped(self, h: Machine, _arg: Any) -> None:
        """Nobody wants it, or nobody may have it: the IO keeps the buffer."""
        self._abandon(h, Ended(HoldEnd.DROPPED, Loss.DROPPED))

    def _abandon(self, h: Machine, ended: Ended) -> None:
        self._unpin(h)
        self.core.close_span(h.number)
        self.core.post(self._tell, h, ended)
        self._let_drain(h)

    def _let_drain(self, h: Machine) -> None:
        """Nobody wants what its IO still brings; the buffer is freed by the end of that IO."""
        if self.core.call_off(h.data.operation):
            self.core.post(self.core.steps.hold.io_ended, h)

    def drained(self, h: Machine, _arg: Any) -> None:
        """The IO is over; nobody reads what it brought."""
        self.core.happened.withdrawn(h.data.operation)
        self._end_io(h)
        self._release(h)

    # Effects: ends without IO

    def tell(self, h: Machine, _arg: Any) -> None:
        """A parked hold ends; it owns nothing."""
        self._release(h)
        self.core.post(self.announce, h)

    def tell_oversize(self, h: Machine, _arg: Any) -> None:
        """A parked hold that could not fit in empty staging."""
        self._release(h)
        self.core.post(self._tell, h, Ended(HoldEnd.DROPPED, Loss.OVERSIZE))

    def tell_short_staging(self, h: Machine, _arg: Any) -> None:
        """A parked hold that waited too long for staging or pin."""
        self._release(h)
        self.core.post(self._tell, h, Ended(HoldEnd.EXPIRED, Loss.SHORT_STAGING))

    def free(self, h: Machine, _arg: Any) -> None:
        """A verified hold ends unspliced; its pages may stay in the host tier."""
        self.core.happened.over(h.number, Thrown.UNSPLICED)
        self._unpin(h)
        self._release(h)
        self.core.post(self.announce, h)

    def load(self, h: Machine, live: int) -> None:
        """The visitor has queued the copies and published the tail: keep both ends until the copies have ended."""
        core, data = self.core, h.data
        firsts = {name: one.first for name, one in data.parts.items()}
        core.happened.loaded(h.number, live)
        start = min([live, *firsts.values()])
        data.span = core.tree.hold_span(data.chain, start, max(start, data.last), firsts=firsts)
        data.operation = core.begin(Kind.LOAD, h.number, lambda n: core.copies.sent(n, core.clock.tick)).number
        core.ledger.take("io", h.number, data.namespace)
        self._unpin(h)
        core.close_span(h.number)
        core.post(self.announce, h)

    def loaded(self, h: Machine, _arg: Any) -> None:
        """The copies have ended."""
        self.core.tree.release_span(h.data.span)
        h.data.span = None
        self._end_io(h)
        self._release(h)

    def _unpin(self, h: Machine) -> None:
        if self.core.ledger.give("pin", h.number):
            self.core.unpin(h.data.pin, h.data.namespace)
        h.data.pin = None
        self.core.news += 1

    def _release(self, h: Machine) -> None:
        """The hold is over: its staging goes back, its span is free for another."""
        core, data = self.core, h.data
        core.close_span(h.number)
        core.count_span(data.namespace, data.start - data.last)
        core.clock.disarm(h)
        if data.units and core.ledger.give("staging", h.number):
            keep = h.state in (HoldState.READY, HoldState.PLANNED, HoldState.LOADING)
            brought.give_back(core, data, keep=keep)
        data.staging, data.parts = [], {}
        core.news += 1
        if not data.claims:
            core.holds.pop(h.number, None)

    # Claimants

    def announce(self, h: Machine, _arg: Any) -> None:
        """Tell every claimant how the hold ended, in order of their claims."""
        self._tell(h, ENDS[HoldState(h.state)])

    def _tell(self, h: Machine, ended: Ended) -> None:
        for number in list(h.data.claims):
            self.core.steps.request.hold_ended(self.core.requests[number], ended)
        if h.state not in (HoldState.LOADING, HoldState.DRAINING):
            self.core.holds.pop(h.number, None)
