"""Rules of *store* and *attachment*: is the store asked at all, and is there one?

Both are decided by agreed results only. A store is believed after it has brought back a test page that was put
there a moment before, at attaching and after every outage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.lifecycle.operations import Kind, Operation
from stagehold.lifecycle.retries import RetryRules
from stagehold.machines import HandleKey, Machine
from stagehold.specs.outcomes import Probed, Result, Started
from stagehold.specs.store import StoreState

TEST_PAGE = blake2b(b"stagehold test page", digest_size=32).digest()
"""Page key of the test page; no chain key equals it but by a collision of the hash."""


@dataclass(slots=True, eq=False)
class BreakerData:
    """Payload of *store*. Times are ticks."""

    epoch: int = 0  # moves with every change of state that results from before it must not count after
    rest: int = 0  # how long the latest rest was to be, hence what its double is
    recovered_at: int = 0  # when the latest probe passed
    trips_left: int = 0  # of the probe under way, the one on its way among them
    window: deque[tuple[int, bool]] = field(default_factory=deque)  # results as (tick, whether it was a fault)
    faults: int = 0  # of those in the window
    test: TestPage | None = None


@dataclass(slots=True, eq=False)
class LinkData:
    """Payload of *attachment*."""

    test: TestPage | None = None
    trips_left: int = 0


@dataclass(slots=True, eq=False)
class TestPage:
    """One round trip of the test page: put it, get it, compare."""

    operation: int
    reading: bool
    buffer: bytearray

    def __deepcopy__(self, memo: dict[int, Any]) -> TestPage:
        """A copy shares the buffer, since the store's operation in flight goes on writing to this very one."""
        twin = memo[id(self)] = TestPage(self.operation, self.reading, self.buffer)
        return twin


def test_bytes(length: int) -> bytearray:
    """The content of the test page, `length` bytes: the byte positions modulo 251, a prime, so that shifts show."""
    return bytearray((bytes(range(251)) * (length // 251 + 1))[:length])


class RoundTrip:
    """Sends the two operations of a test page and says when, and how, they have ended on all ranks."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def begin(self, kind: Kind, owner: int) -> TestPage:
        """Put the page."""
        page = TestPage(0, reading=False, buffer=test_bytes(self.core.config.page_bytes))
        page.operation = self._send(kind, owner, page)
        return page

    def _send(self, kind: Kind, owner: int, page: TestPage) -> int:
        names = self.core.stocks.spine.names([TEST_PAGE], self.core.at)
        buffers, reading = [memoryview(page.buffer)], page.reading

        def start(number: int) -> None:
            store = self.core.store
            assert store is not None, "a test page without a store"
            call = store.get_into if reading else store.put
            call(number, names, buffers, self.core.clock.tick)

        operation = self.core.begin(kind, owner, start, 1)
        if reading:
            # Looked at where it arrives, and agreed on like every fact: one rank alone must not turn a store away.
            read = page.buffer
            operation.proof = lambda: read == test_bytes(len(read))
        return operation.number

    def ended(self, page: TestPage, operation: Operation, kind: Kind) -> bool | None:
        """After an operation of the page: None while the second is on its way, else whether the page came back."""
        if operation.good != 1:
            return False
        if not page.reading:
            page.reading = True
            page.buffer = bytearray(len(page.buffer))
            page.operation = self._send(kind, operation.owner, page)
            return None
        return True


class BreakerRules:
    """Decisions `result` and `probed`; effects that rest, probe and recover."""

    def __init__(self, core: Core, retries: RetryRules) -> None:
        self.core = core
        self.retries = retries
        self.trips = RoundTrip(core)

    def observe(self, *, fault: bool) -> None:
        """Enter one agreed result of this epoch into the window, and let the old ones fall out."""
        core, data = self.core, self.core.breaker.data
        data.window.append((core.clock.tick, fault))
        data.faults += fault
        while data.window[0][0] <= core.clock.tick - core.limits.suspect_window:
            data.faults -= data.window.popleft()[1]

    def result(self, m: Machine, _arg: Any) -> Result:
        """TRIPPED at the limits' share of faults, once the window holds enough results to mean anything."""
        window, faults, limits = m.data.window, m.data.faults, self.core.limits
        if len(window) >= limits.trip_results and faults >= limits.trip_ratio * len(window):
            return Result.TRIPPED
        return Result.FAULTY if faults else Result.CLEAN

    def probe_ended(self, operation: Operation) -> bool | None:
        """After an operation of the probe: whether the store passed, or None while a trip is left to make.

        One good answer proves little of a store that fails half of them, so `probe_trips` in a row are asked for.
        """
        data = self.core.breaker.data
        good = self.trips.ended(data.test, operation, Kind.PROBE)
        if good:
            data.trips_left -= 1
            if data.trips_left:
                data.test = self.trips.begin(Kind.PROBE, operation.owner)
                return None
        return good

    def probed(self, _m: Machine, good: bool) -> Probed:
        """What the round trips showed."""
        return Probed.GOOD if good else Probed.BAD

    def rest(self, m: Machine, _arg: Any) -> None:
        """Too many faults: do not ask for a while; longer, where the last recovery was shorter than its rest."""
        data, limits = m.data, self.core.limits
        relapse = data.rest and self.core.clock.tick - data.recovered_at < data.rest
        data.rest = min(2 * data.rest, limits.open_limit_cap) if relapse else limits.open_limit
        self._new_epoch(m)

    def rest_longer(self, m: Machine, _arg: Any) -> None:
        """The probe failed: twice as long, up to the cap."""
        m.data.rest = min(2 * m.data.rest, self.core.limits.open_limit_cap)
        self._strike_probe(m)
        self._new_epoch(m)

    def _strike_probe(self, m: Machine) -> None:
        self.core.ledger.give("probe", m.number)

    def _new_epoch(self, m: Machine) -> None:
        m.data.epoch += 1
        m.data.window.clear()
        m.data.faults = 0
        m.data.test = None
        self.core.news += 1

    def probe(self, m: Machine, _arg: Any) -> None:
        """Round trips of the test page decide."""
        m.data.epoch += 1
        m.data.trips_left = self.core.limits.probe_trips
        m.data.test = self.trips.begin(Kind.PROBE, m.number)
        self.core.ledger.take("probe", m.number, b"")

    def recover(self, m: Machine, _arg: Any) -> None:
        """The store answers again: wake every retry that was waiting for that."""
        self._strike_probe(m)
        self._new_epoch(m)
        m.data.recovered_at = self.core.clock.tick
        self.core.post(self._wake, m)

    def _wake(self, _m: Machine, _arg: Any) -> None:
        self.retries.recovered()

    def close(self, m: Machine, _arg: Any) -> None:
        """The engine goes; a probe in flight is its own operation's business."""
        if ("probe", m.number) in self.core.ledger.entries:
            self._strike_probe(m)
        m.data.test = None


class LinkRules:
    """Decision `started`; effects that open, drop and close."""

    decree: Callable[[], None]  # tells every hold and write to stop; set when the engine is assembled

    def __init__(self, core: Core) -> None:
        self.core = core
        self.trips = RoundTrip(core)

    def test_ended(self, operation: Operation) -> bool | None:
        """After an operation of the self-test: whether the store passed, or None while an operation is left."""
        data = self.core.link.data
        good = self.trips.ended(data.test, operation, Kind.SELFTEST)
        if good is False:
            data.trips_left -= 1
            if data.trips_left:
                data.test = self.trips.begin(Kind.SELFTEST, operation.owner)
                return None
        return good

    def started(self, _m: Machine, good: bool) -> Started:
        """What the self-test showed."""
        return Started.READY if good else Started.REFUSED

    def open_link(self, m: Machine, _arg: Any) -> None:
        """Run the self-test; a second trip is allowed, since reading a damaged test page makes way for a new one."""
        m.data.trips_left = 2
        self.open_breaker()
        m.data.test = self.trips.begin(Kind.SELFTEST, m.number)
        self.core.ledger.take("link", m.number, b"")

    def close_link(self, m: Machine, _arg: Any) -> None:
        """Let go of the store and end its breaker; what still flies keeps its own buffers."""
        m.data.test = None
        if ("link", m.number) in self.core.ledger.entries:
            self.core.ledger.give("link", m.number)
        self.core.post(self._close_breaker, m)

    def _close_breaker(self, _m: Machine, _arg: Any) -> None:
        if self.core.breaker.state is not StoreState.CLOSED:
            self.core.steps.store.close(self.core.breaker)

    def open_breaker(self) -> None:
        """A store that is attached after another starts without its history."""
        core, old = self.core, self.core.breaker
        if old.state is StoreState.CLOSED:
            data = BreakerData(epoch=old.data.epoch + 1)
            core.breaker = core.steps.store.birth(data, HandleKey("store", data.epoch, b""))

    def drop_all(self, m: Machine, _arg: Any) -> None:
        """Every hold and write is told to stop; their IO runs out."""
        self.core.post(lambda _m, _arg: self.decree(), m)
