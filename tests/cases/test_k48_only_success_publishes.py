"""K48 and K111: a failed transfer was counted as done, and another request's KV was served; or it killed the worker.

Here a completion carries a verdict for every page, only HIT lets a page be published, and whatever an engine raises
is such a verdict. The request computes the rest.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.page import encode_header
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import Medium, Rates, SimulatedStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.testing.faults import FaultAdapter, FaultPlan, Faults
from stagehold.testing.service import Service

FAMILIES = range(12)


@pytest.fixture
def medium() -> Medium:
    """What an honest store holds for all families."""
    held = Medium()
    with Service(SimulatedStore(medium=held), page_bytes=1024) as service:
        service.attach()
        service.serve(FAMILIES)
        service.drain()
    return held


@pytest.mark.parametrize("fault", ["fail", "short", "corrupt"])
def test_a_transfer_that_fails_on_its_way_publishes_its_good_head_only(medium: Medium, fault: str) -> None:
    """Buffers are left half overwritten; nobody reads a wrong byte, and everybody finishes."""
    store = FaultAdapter(SimulatedStore(medium=medium), 3, FaultPlan(get=Faults(**{fault: 0.5})))
    with Service(store, page_bytes=1024) as service:
        service.until(lambda: service.engine.attachment.name != "ATTACHING")
        service.serve(FAMILIES)
        assert service.breaches() == []
        assert store.counts[fault] > 0


@pytest.mark.parametrize("rates", [Rates(fail=0.4), Rates(corrupt=0.1), Rates(short=0.1)])
def test_pages_that_are_bad_in_the_store_are_computed_again(medium: Medium, rates: Rates) -> None:
    """Some pages are used, some are not, and all bytes are right."""
    store = SimulatedStore(7, medium=medium)
    with Service(store, page_bytes=1024) as service:
        service.attach()
        store._rates = rates
        service.serve(FAMILIES)
        assert service.breaches() == []
        assert 0 < service.served.store_hit_tokens < len(FAMILIES) * 128


class Trusting(SimulatedStore):
    """The naive reader: whatever arrived is a hit, though it is somebody else's page."""

    def _read(self, name, out):
        super()._read(name, out)
        other = next(iter(self.medium.names()))
        out[:] = self.medium.read(other)[len(encode_header(b"x", b"")) :]
        return Verdict.HIT


def test_a_failure_that_is_called_done_is_seen_as_wrong_bytes(medium: Medium) -> None:
    """The planted fault: without verdicts the requests would have read another's KV, and this harness says so."""
    store = SimulatedStore(medium=medium)
    with Service(store, page_bytes=1024) as service:
        service.attach()
        store.__class__ = Trusting
        service.serve(FAMILIES)
        assert any("wrong bytes" in breach for breach in service.breaches())


class Explosive:
    """An engine that answers some calls with an exception of any kind."""

    name = "explosive"

    def __init__(self) -> None:
        self.kinds = [OSError, KeyError, AssertionError, MemoryError, SystemExit]
        self.pages: dict[bytes, bytes] = {}
        self.armed = False

    def _explode(self) -> None:
        if self.armed:
            self.kinds.append(self.kinds.pop(0))
            raise self.kinds[-1]("planted")

    def exists(self, keys, on_page):
        self._explode()
        for index, key in enumerate(keys):
            on_page(index, Verdict.HIT if key in self.pages else Verdict.MISS)

    def get_into(self, keys, buffers, on_page):
        for index, key in enumerate(keys):
            if index:
                self._explode()
            if key in self.pages:
                buffers[index][:] = self.pages[key]
            if not on_page(index, Verdict.HIT if key in self.pages else Verdict.MISS):
                return

    def put(self, keys, buffers, on_page):
        self._explode()
        for index, key in enumerate(keys):
            self.pages[key] = bytes(buffers[index])
            on_page(index, Verdict.STORED)

    def close(self):
        pass


def test_an_error_of_any_kind_is_data() -> None:
    """Threads survive what their engine raises; requests go on; afterwards the store serves again."""
    engine = Explosive()
    store = WorkerStore(engine, workers=2)
    with Service(store, page_bytes=1024, open_limit=16, open_limit_cap=16) as service:
        service.attach()
        engine.armed = True
        for wave in range(6):
            service.serve(range(4 * wave, 4 * wave + 4))
        assert {error.split(":")[1].strip() for error in store.errors} == {kind.__name__ for kind in engine.kinds}
        assert all(thread.is_alive() for thread in store._threads)
        engine.armed = False
        service.until(lambda: service.breaker.name == "HEALTHY")
        service.serve(range(100, 104))
        service.drain()
        assert service.breaches() == []
        assert service.engine.stats().stored_pages > 0
