"""Launches of *request*: is the store asked, and for which pages?

A launch looks at the live tree, at what is known of the store, and at the limits; it opens a query or a claim. When
it is tried again stands in `retries.py`.
"""

from __future__ import annotations

from typing import Any

from stagehold.cache.components.base import Span
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Brought, HoldData, RequestData
from stagehold.lifecycle.operations import Ends, Kind
from stagehold.lifecycle.retries import RetryRules
from stagehold.machines import Machine, SpanKey
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Answer, Decline, Launch, PrefetchPolicy, Resolve


class LaunchRules:
    """Decisions `launch`, `answer`, `resolve`; effects that ask, claim, and give up."""

    def __init__(self, core: Core, retries: RetryRules) -> None:
        self.core = core
        self.retries = retries

    # Decisions

    def launch(self, m: Machine, _arg: Any) -> Launch:
        """Asked in the order CAP, TOO_SHORT, KNOWN (host), STORE_OPEN, KNOWN, DECLINED, LOOKUP."""
        core, data = self.core, m.data
        if not core.serves or self.is_spent(m):
            return Launch.CAP
        start = core.live.joint_match(data.chain, data.hit_limit)
        if (data.known_end or data.hit_limit) - start < core.config.threshold_pages:
            return Launch.TOO_SHORT
        hosted, known = core.hosted_end(data.chain, start, data.hit_limit), self._is_known(data, start)
        if core.alone:
            return Launch.KNOWN if hosted else Launch.CAP
        if hosted and not (known and data.known_end > hosted) and not self._consults(data, hosted):
            return Launch.KNOWN
        if core.store_open and not (known and self._is_served(data, start)):
            return Launch.STORE_OPEN
        if known:
            return Launch.KNOWN
        return Launch.LOOKUP if self.declined(data, start) is None else Launch.DECLINED

    def answer(self, m: Machine, good: int) -> Answer:
        """HIT when the pages found are worth a hold; `good` counts them from the first page asked for.

        What host memory has behind it counts as found: the store was asked for what follows.
        """
        core, data = self.core, m.data
        good = max(good, core.hosted_end(data.chain, data.asked_from, data.hit_limit) - data.asked_from)
        good = min(good, data.hit_limit - data.asked_from)
        if good == 0:
            return Answer.MISS
        return Answer.HIT if good >= core.config.threshold_pages else Answer.BELOW_THRESHOLD

    def resolve(self, m: Machine, _arg: Any) -> Resolve:
        """RETRY while an issue is left."""
        return Resolve.CAP if self.is_spent(m) else Resolve.RETRY

    def is_spent(self, m: Machine) -> bool:
        """Whether the request gets no further launch: it has had them all, or its books were found wrong."""
        return m.issues >= self.core.limits.issue_limit or m.data.barred

    def _consults(self, data: RequestData, hosted: int) -> bool:
        """Whether the store is asked for what follows the pages that host memory has.

        Once an attempt, where it may hold enough to be worth a fetch and somebody waits for its answer. Otherwise, and
        whatever comes of it, the hosted pages are claimed.
        """
        core = self.core
        if data.consulted or core.store_open or core.config.prefetch_policy is PrefetchPolicy.BEST_EFFORT:
            return False
        worth = data.hit_limit - hosted >= core.config.threshold_pages
        return worth and self.declined(data, hosted) is None

    def _is_known(self, data: RequestData, live: int) -> bool:
        """Whether an earlier answer still says what the store holds behind the joint match."""
        core = self.core
        if data.known_end <= live or self._is_too_long(data, live):
            return False
        gap = range(live, min(data.asked_from, data.known_end))
        return all(core.beliefs.knows(data.chain.page_key(page)) for page in gap)

    def _is_too_long(self, data: RequestData, live: int) -> bool:
        """Whether tenants have come since, and what was found is more than a hold of this one can have now.

        Where nothing gates a match it is cut; else it is not known where a shorter hit could end.
        """
        core = self.core
        return bool(core.quotas.on and core.stocks.gates) and data.known_end - live > core.span_limit(data.namespace)

    def _is_served(self, data: RequestData, live: int) -> bool:
        """Whether a hold of this very span is being served, or needs the store no more."""
        number = self.core.spans.get((data.chain.page_key(data.known_end - 1), live, data.known_end))
        return number is not None and self.core.holds[number].state in (HoldState.FETCHING, HoldState.READY)

    def declined(self, data: RequestData, first: int) -> Decline | None:
        """Why no lookup for page `first` and on may be launched now; None if it may."""
        if self.core.gate.bars(data.handle):
            return Decline.LOSING
        if self.core.beliefs.is_absent(data.chain.page_key(first)):
            return Decline.ABSENT
        core = self.core
        lookups = core.ledger.totals["query"] + core.quotas.lookups.for_others(data.namespace)
        if lookups >= core.config.query_limit:
            return Decline.QUERY_RATE
        return Decline.LOAD_LIMIT if core.is_load_full(data.namespace) else None

    # Effects: asking and claiming

    def ask(self, m: Machine, _arg: Any) -> None:
        """Send one lookup for all pages behind the joint match; it holds no buffer, no pin. The anchor counts as used.

        Of other components it asks for every page at which the hit could end, since a hit ends where all of them do.
        Else it asks for a last page that has to be computed, too: whether it is stored decides if it will be written.
        """
        core, data = self.core, m.data
        self.retries.leave_retry(m)
        live, start = core.matches(data.chain, data.hit_limit)
        core.live.touch(data.chain, live)
        core.ledger.take("query", m.number, data.namespace)
        data.asked_from, data.asked_at, data.known_end = start, core.beliefs.lessons, 0
        data.consulted = True
        core.gate.asks(data.handle, m.number)
        stocks = core.stocks
        longest = core.span_limit(data.namespace)
        last = min(data.hit_limit, start + longest) if stocks.gates else data.chain.n_pages
        data.asked_to = last
        names: list[bytes] = []
        for name in (stocks.spine.name, *(part.name for part in stocks.gates)):
            stock = stocks.by_name[name]
            names += stock.names(stock.keys(data.chain, start, last), core.at)

        def send(number: int) -> None:
            core.store_for(number, data.namespace).exists(number, names, core.clock.tick)

        query = core.begin(Kind.QUERY, m.number, send, len(names))
        if stocks.gates:
            query.ends = Ends(stocks.gates, start, last)
        data.query = query.number

    def claim(self, m: Machine, _arg: Any) -> int:
        """Open or join the hold of the span that is known, host tier first."""
        core, data = self.core, m.data
        live, start = core.matches(data.chain, data.hit_limit)
        core.live.touch(data.chain, live)
        self.retries.leave_retry(m)
        hosted = core.hosted_end(data.chain, start, data.hit_limit)
        known = data.known_end if self._is_known(data, start) else 0
        if known > hosted:
            core.gate.asks(data.handle, m.number)
        return self._open_claim(m, start, max(hosted, known))

    def claim_hit(self, m: Machine, good: int) -> int:
        """Open or join the hold of the span that a lookup has just found."""
        core, data = self.core, m.data
        self.end_query(m)
        hosted = core.hosted_end(data.chain, data.asked_from, data.hit_limit)
        data.known_end = data.asked_from + good
        self._learn(data)
        data.known_end = min(data.hit_limit, max(data.known_end, hosted))
        start = core.live.joint_match(data.chain, data.known_end)
        start = start if data.asked_from < start < data.known_end else data.asked_from
        return self._open_claim(m, start, data.known_end)

    def _learn(self, data: RequestData) -> None:
        """What an answer says of the store: all up to the known end is there, and nothing else was found behind it."""
        core = self.core
        core.beliefs.teach(core.keys(data.chain, data.asked_from, data.known_end))
        gates = [part.name for part in core.stocks.gates]
        for name, span in core.stocks.brought(data.asked_from, data.known_end, gates).items():
            core.beliefs.teach(core.stocks.by_name[name].keys(data.chain, *span))
        self._unlearn(data, data.known_end)

    def _unlearn(self, data: RequestData, first: int) -> None:
        """The pages from `first` on could not be had when the store was asked."""
        core = self.core
        for name in (core.stocks.spine.name, *(part.name for part in core.stocks.gates)):
            core.beliefs.unteach(core.stocks.by_name[name].keys(data.chain, first, data.asked_to), data.asked_at)

    def _open_claim(self, m: Machine, start: int, last: int) -> int:
        """A claim on the one hold of pages [start, last), shortened to what staging can ever give."""
        core, data = self.core, m.data
        if not core.stocks.gates:
            last = min(last, start + core.span_limit(data.namespace))
        number = core.spans.get((data.chain.page_key(last - 1), start, last))
        hold = self._open_hold(data, start, last) if number is None else core.holds[number]
        hold.data.claims.append(m.number)
        data.hold, data.claim_tokens = hold.number, (last - start) * core.config.page_size
        core.ledger.take("claim", m.number, data.namespace)
        return core.ledger.open_claim(data.claim_tokens) | hold.number << 32

    def _open_hold(self, data: RequestData, start: int, last: int) -> Machine:
        core = self.core
        key = data.chain.page_key(last - 1)
        payload = HoldData(data.chain, data.namespace, start, last, key)
        # Siblings may have moved the start so near to the end that a window begins before it: that is found, too.
        asked = min(start, data.asked_from)
        payload.parts = {name: Brought(first) for name, (first, _) in self._declared(data, asked, last).items()}
        hold: Machine = core.steps.hold.birth(payload, SpanKey(data.namespace, key, start, last))
        core.holds[hold.number] = hold
        core.spans[(key, start, last)] = hold.number
        core.count_span(data.namespace, last - start)
        core.news += 1
        return hold

    def _declared(self, data: RequestData, start: int, last: int) -> dict[str, Span]:
        """What a hold brings besides the pages: of what gates a match all, of the rest what is believed stored."""
        core, found = self.core, {}
        for name, span in core.stocks.brought(start, last, [part.name for part in core.stocks.parts]).items():
            stock = core.stocks.by_name[name]
            keys = stock.keys(data.chain, *span)
            if core.stocks.part(name).gates or all(stock.host.has(key) or core.beliefs.knows(key) for key in keys):
                found[name] = span
        return found

    # Effects: answers that give nothing

    def miss(self, m: Machine, good: int) -> int:
        """Nothing worth fetching is stored now; the record says how many tokens were found."""
        core, data = self.core, m.data
        data.missing = data.asked_from + good
        self._unlearn(data, data.missing)
        # Where several components must agree on an end, that nothing was found says little of a longer prompt.
        if not (good or data.doubtful or core.stocks.gates):
            core.beliefs.deny(data.chain.page_key(data.missing))
        self.end_query(m)
        data.look_again = True
        return good * core.config.page_size

    def drop_query(self, m: Machine, _arg: Any) -> None:
        """Give up on the lookup; its late answer finds no handle."""
        self.end_query(m)
        m.data.missing, m.data.look_again = m.data.asked_from, True

    def end_query(self, m: Machine) -> None:
        """The lookup is over for this request; if it was never sent off, it never will be."""
        self.core.withdraw(m.data.query)
        m.data.query = 0
        self.core.ledger.give("query", m.number)

    def too_short(self, m: Machine, _arg: Any) -> None:
        """Nothing is missing that is worth a fetch, as long as the tree keeps what it has."""
        self.retries.leave_retry(m)
        m.data.covered_end = self.core.live.joint_match(m.data.chain, m.data.hit_limit)

    def decline(self, m: Machine, _arg: Any) -> int:
        """The reason goes into the record. What was heard a moment ago counts as if this request had asked."""
        core, data = self.core, m.data
        self.retries.leave_retry(m)
        start = core.live.joint_match(data.chain, data.hit_limit)
        reason = self.declined(data, start)
        assert reason is not None
        if reason is Decline.QUERY_RATE:
            core.quotas.refuse("lookup", fits_alone=core.ledger.totals["query"] < core.config.query_limit)
        if reason is Decline.LOAD_LIMIT:
            core.quotas.refuse("load", fits_alone=core.hold_pages < core.config.load_limit_pages)
        if reason is Decline.ABSENT:
            data.asked_from = data.missing = start
            data.asked_at, data.look_again = core.beliefs.lessons, True
        return reason

    def store_open(self, m: Machine, _arg: Any) -> None:
        """Wait for the store's recovery."""
        self.retries.leave_retry(m)
