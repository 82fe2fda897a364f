"""One pass: poll, agree, apply, time, issue, record. This file tells the story; the rules do the work.

Nothing acts on arrival. What a rank finds out is a fact; only agreed facts become events, in operation order, each
with its whole cascade before the next.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import assert_never

from stagehold.cache.stores.protocol import Store
from stagehold.lifecycle.breaker import BreakerRules, LinkRules
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.facts import TAIL, Agreement, Capacity, Facts, pack
from stagehold.lifecycle.holds import PASSES_BEFORE_ELDERS_FIRST, HoldRules
from stagehold.lifecycle.offers import Offers
from stagehold.lifecycle.operations import Kind, Operation
from stagehold.lifecycle.ranks.testimony import device_digest, start_digest
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.writes import WriteRules
from stagehold.machines import Block, Machine
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import IoCommit
from stagehold.specs.request import RequestState
from stagehold.specs.store import StoreState
from stagehold.specs.write import WriteState

LOG = logging.getLogger("stagehold")

TOOK_STAGING = (IoCommit.PINNED, IoCommit.NO_ANCHOR, IoCommit.TOO_LARGE_TO_PIN)

SILENCES = (
    ("request", RequestState.LOOKUP),
    ("hold", HoldState.FETCHING),
    ("write", WriteState.STORING),
)
"""Waits for the store: one that runs into its limit is a fault of the breaker's current epoch."""


class Tick:
    """The phases of `Engine.tick`."""

    def __init__(
        self,
        core: Core,
        retries: RetryRules,
        holds: HoldRules,
        *,
        writes: WriteRules,
        offers: Offers,
        breaker: BreakerRules,
        link: LinkRules,
    ) -> None:
        self.core = core
        self.retries = retries
        self.holds = holds
        self.writes = writes
        self.offers = offers
        self.breaker_rules = breaker
        self.link_rules = link
        self.arrivals: deque[Machine] = deque()  # requests that have not been launched yet, in order of arrival
        self._waiting: dict[bytes, deque[Machine]] = {}  # those put off, by tenant, until it may load more
        self._mute: set[str] = set()  # names of the stores whose last poll raised
        self._had = Capacity(0, 0, 0)  # what this rank had left at the last poll
        self._looked_at = -1  # what `Core.news` was when parked holds and queued writes were last looked at

    # Polling

    def poll(self) -> Facts:
        """Collect what ended here; nothing acts on it yet."""
        core = self.core
        core.clock.tick += 1
        core.beliefs.age(core.clock.tick)
        core.operations.finish(core.copies.poll(core.clock.tick))
        for store in (*core.former, core.store):
            if store is not None:
                self._hear(store)
        self._had = core.capacity()
        mark = 0 if core.quarantined else core.operations.mark
        return pack(core.operations.facts(), self._to_compare(), self._had, mark)

    def _to_compare(self) -> bytes:
        """What must be the same on every rank: the last block; before the first one, how the engine was started."""
        core = self.core
        if core.quarantined:
            return device_digest(core)
        return core.journal.digest if core.journal.next_index else start_digest(core)

    def _hear(self, store: Store) -> None:
        """A store that raises, or says what is no progress, has no news: what it was asked runs into its limits."""
        try:
            self.core.operations.note(store.poll(self.core.clock.tick))
        except AssertionError:
            raise
        except Exception:
            if store.name not in self._mute:
                LOG.exception("store %r has no news: its poll failed", store.name)
            self._mute.add(store.name)
        else:
            self._mute.discard(store.name)

    # Applying

    def agreed(self, found: Agreement) -> None:
        """From here on nobody counts on more than the poorest rank has."""
        core, had, least = self.core, self._had, found.least
        core.least, core.most = least, found.most
        core.uneven = core.uneven + 1 if least != found.most else 0
        core.short = Capacity(*(own - few for own, few in zip(had, least, strict=True)))

    def apply(self, agreed: Facts, *, advance_retries: bool) -> None:
        """Agreed facts become events, by operation number; in quarantine each rank runs out its own IO."""
        core = self.core
        core.pacing.tick += advance_retries
        for operation in core.operations.apply(core.operations.facts() if core.quarantined else agreed[:-TAIL]):
            self.end(operation)
        self.core.operations.place()

    def end(self, operation: Operation) -> None:
        """One operation is over: tell the machine that owns it, and the breaker."""
        if operation.kind in (Kind.QUERY, Kind.FETCH, Kind.PUT) and operation.speaks:
            self._observe(operation.epoch, fault=operation.fault)
        match operation.kind:
            case Kind.QUERY:
                self._query_ended(operation)
            case Kind.FETCH:
                self._fetch_ended(operation)
            case Kind.LOAD:
                self.core.steps.hold.loaded(self.core.holds[operation.owner])
            case Kind.COPY:
                self.core.steps.write.copied(self.core.writes[operation.owner])
            case Kind.PUT:
                self._put_ended(operation)
            case Kind.SELFTEST:
                self._selftest_ended(operation)
            case Kind.PROBE:
                self._probe_ended(operation)
            case _:
                assert_never(operation.kind)
        self.core.settle()

    def _observe(self, epoch: int, *, fault: bool) -> None:
        """A result counts in its own epoch, and only where the breaker listens."""
        breaker = self.core.breaker
        if breaker.data.epoch == epoch and breaker.state in (StoreState.HEALTHY, StoreState.SUSPECT):
            self.breaker_rules.observe(fault=fault)
            self.core.steps.store.result(breaker)
            self.core.settle()

    def _query_ended(self, operation: Operation) -> None:
        m = self.core.requests.get(operation.owner)
        if m is not None and m.data.query == operation.number:
            m.data.doubtful = operation.fault
            self.core.steps.request.answer(m, operation.good)

    def _fetch_ended(self, operation: Operation) -> None:
        h = self.core.holds[operation.owner]
        wanted = h.state is not HoldState.DRAINING
        self.core.happened.ended(operation.number, h.number, operation.good - operation.ready, wanted=wanted)
        if not wanted:
            self.core.steps.hold.io_ended(h)
        else:
            self.core.steps.hold.fetched(h, operation.good)

    def _put_ended(self, operation: Operation) -> None:
        w = self.core.writes[operation.owner]
        if w.state is WriteState.DRAINING:
            self.core.steps.write.io_ended(w)
        else:
            self.core.steps.write.put_ended(w, operation.good)

    def _selftest_ended(self, operation: Operation) -> None:
        link = self.core.link
        test = link.data.test
        if test is None or test.operation != operation.number or link.state is not AttachmentState.ATTACHING:
            return
        good = self.link_rules.test_ended(operation)
        if good is not None:
            self.core.steps.attachment.started(link, good)

    def _probe_ended(self, operation: Operation) -> None:
        breaker = self.core.breaker
        test = breaker.data.test
        if test is None or test.operation != operation.number or breaker.state is not StoreState.PROBING:
            return
        good = self.breaker_rules.probe_ended(operation)
        if good is not None:
            self.core.steps.store.probed(breaker, good)

    # Timing

    def time(self) -> None:
        """Deadlines that fall on this tick, then retries, each in the order in which they were armed."""
        core = self.core
        core.gate.turn(core.clock.tick, trial_waits=self._is_held_back(core.gate.trial))
        if core.clock.called():
            core.news += 1
        for timer in core.clock.due():
            if core.clock.applies(timer):
                if (timer.kind, timer.state) in SILENCES:
                    self._observe(core.breaker.data.epoch, fault=True)
                getattr(core.steps, timer.kind).fire(timer.machine, timer.event)
                core.settle()
        for timer in core.pacing.due():
            if core.pacing.applies(timer):
                self.retries.send_due(core.requests[timer.machine.number])
                core.settle()
        if core.link.state is AttachmentState.DRAINING and not core.operations.asked:
            core.steps.attachment.drained(core.link)
            core.settle()
        if core.former and not core.operations.live:
            self.close_former()

    def _is_held_back(self, number: int) -> bool:
        m = self.core.requests.get(number)
        return m is not None and m.state in (RequestState.LOOKUP, RequestState.STAGED)

    def close_former(self) -> None:
        """Stores that were replaced, once nothing of theirs is in flight any more."""
        for store in self.core.former:
            self.close_store(store)
        self.core.former.clear()

    def close_store(self, store: Store) -> None:
        """A store that raises then is let go all the same."""
        try:
            store.close()
        except Exception:
            LOG.exception("store %r was not closed well", store.name)

    def close_stores(self) -> None:
        """The store in use and those that were replaced."""
        if self.core.store is not None:
            self.close_store(self.core.store)
        self.close_former()

    # Issuing

    def issue(self) -> None:
        """Launches in order of arrival, then IO commits oldest first, then writes."""
        if self.core.quotas.on and self.core.quotas.turn(self.core.clock.tick):
            self.core.news += 1
        self._launch()
        self.offers.leaving()
        if self.core.news != self._looked_at:
            self._looked_at = self.core.news
            self._commit_io()
            self._start_writes()
        self.writes.send_copies()

    def _launch(self) -> None:
        """The head of the queue first; what lies behind a full staging is launched when there is room again."""
        if self.core.link.state is AttachmentState.ATTACHING:
            return
        for tenant, queue in list(self._waiting.items()):
            self._launch_from(queue)
            if not queue:
                del self._waiting[tenant]
        while self._launch_from(self.arrivals) and self.core.quotas.on:
            m = self.arrivals.popleft()  # its tenant may load no more; others may
            self._waiting.setdefault(m.data.namespace, deque()).append(m)

    def _launch_from(self, queue: deque[Machine]) -> bool:
        """Launch the queue's requests up to one that has to wait; whether there is one."""
        core = self.core
        while queue:
            m = queue[0]
            if m.state is RequestState.QUEUED:
                if core.serves and core.is_load_full(m.data.namespace):
                    return True
                core.steps.request.issue(m)
                core.settle()
            queue.popleft()
        return False

    def queued(self) -> list[Machine]:
        """Requests that have not been launched yet, those that were put off first."""
        return [*(m for queue in self._waiting.values() for m in queue), *self.arrivals]

    def _commit_io(self) -> None:
        """Parked holds, oldest first; a smaller one may pass a larger one, a bounded number of times."""
        core = self.core
        short: list[Machine] = []
        self.holds.elders = []
        for h in [h for h in core.holds.values() if h.state is HoldState.PARKED]:
            outcome = self._commit_one(h)
            if outcome is IoCommit.NO_STAGING:
                short.append(h)
                if h.data.passed >= PASSES_BEFORE_ELDERS_FIRST:
                    self.holds.keep_for(h)
            elif outcome in TOOK_STAGING:
                for elder in short:
                    elder.data.passed += 1

    def _commit_one(self, h: Machine) -> IoCommit | None:
        """One try; None where the cascade of an earlier one has moved the hold."""
        if h.state is not HoldState.PARKED:
            return None
        outcome = self.core.steps.hold.io_commit(h, self.holds.look(h))
        self.core.settle()
        self.holds.tried(h, IoCommit(outcome))
        return IoCommit(outcome)

    def _start_writes(self) -> None:
        """Queued writes, each component by itself, until one of them is found blocked; then a few that may be gone."""
        core, backlog = self.core, self.core.backlog
        backlog.resume(core.clock.tick)
        for w in backlog.turn():
            core.steps.write.start(w)
            core.settle()
        for w in backlog.rota():
            if self.writes.is_gone(w):
                core.steps.write.start(w)
                core.settle()
        if backlog.unfinished:
            core.news += 1

    # Recording

    def record(self) -> Block:
        """Close the block of this tick; its digest is exchanged in the next."""
        return self.core.journal.close_block(self.core.clock.tick)
