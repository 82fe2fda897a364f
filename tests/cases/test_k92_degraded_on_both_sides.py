"""K92: a cache that had lost its store asserted instead of recomputing.

Here being without a store is a state on both sides: the engine asks nothing and admits at once, workers answer
with verdicts, and neither knows an operation that must not fail.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.simulated import Delays, Rates, SimulatedStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.specs.store import StoreState
from stagehold.testing.service import Service


@pytest.mark.parametrize(
    "rates",
    [Rates(fail=1.0), Rates(stall=1.0), Rates(lose=1.0), Rates(corrupt=1.0), Rates(short=1.0)],
    ids=["fails", "stalls", "loses", "corrupts", "cuts"],
)
def test_the_engine_serves_on_whatever_the_store_does(rates: Rates) -> None:
    """From one pass to the next nothing works any more: all finish, in time, with the right bytes."""
    store = SimulatedStore(1, delays=Delays((1, 1), (1, 2), (1, 2)))
    with Service(store, page_bytes=1024) as service:
        service.attach()
        service.serve(range(4))
        store._rates = rates
        for wave in range(6):
            service.serve(range(10 + 8 * wave, 18 + 8 * wave))
        assert service.breaches() == []


def test_the_workers_serve_on_when_their_directory_is_gone(tmp_path) -> None:
    """Somebody removes it under the store: misses and faults, no dead thread; and it comes back by itself."""
    import shutil

    root = tmp_path / "kv"
    store = WorkerStore(FileStore(root, floor_bytes=0), workers=2)
    with Service(store, page_bytes=1024) as service:
        service.attach()
        service.serve(range(4))
        service.drain()
        shutil.rmtree(root)
        service.serve(range(10, 26))
        service.serve(range(30, 46))
        assert service.breaches() == []
        assert all(thread.is_alive() for thread in store._threads)


def test_an_engine_whose_breaker_is_open_admits_at_once() -> None:
    """No lookup, no wait, no operation: the same passes as an engine that never had a store."""
    store = SimulatedStore(1, delays=Delays((1, 1), (1, 2), (1, 2)))
    with Service(store, page_bytes=1024) as service:
        service.attach()
        store._rates = Rates(fail=1.0)
        for wave in range(20):
            if service.breaker is StoreState.OPEN:
                break
            service.serve(range(10 + 4 * wave, 14 + 4 * wave))
        assert service.breaker is StoreState.OPEN
        late = service.submit(range(900, 904))
        service.step()
        assert service.store.in_flight() == []
        service.until(lambda: service.scheduler.idle)
        assert {service.served.waited[rid] for rid in late} == {0}
