"""An engine over real servers that are killed or stand still in the middle of a read.

Requests finish, no wrong byte is read, nobody waits longer than its budget, no thread is left in a call, and a
server that comes back is used again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.workers import WorkerStore
from stagehold.specs.store import StoreState
from stagehold.testing.service import PAGE_SIZE, PROMPT_PAGES, Service

PAGE_BYTES = 1 << 18
DEADLINE_SECONDS = 1.0
PACE_SECONDS = 0.005
FAMILIES = range(6)
QUICK = {"open_limit": 32, "open_limit_cap": 32}
"""A store that is back is found within 32 passes of any of its probes."""
PATIENT = {"wait_base_ticks": 512, "lookup_limit": 512}
"""Where there is no fault, a slow machine is waited for."""


@pytest.fixture(params=["valkey", "s3", "mooncake"])
def server(request: pytest.FixtureRequest):
    """A server of each kind that a test may kill."""
    if request.param == "s3":
        return request.getfixturevalue("s3_server_with")()
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def open_service() -> Iterator[Callable[..., Service]]:
    """Services over a URL; each is closed, and then no thread of its store is left in time."""
    before = threading.active_count()
    opened = []

    def build(url: str, **limits: int) -> Service:
        mark = "&" if "?" in url else "?"
        store = open_store(f"{url}{mark}deadline={DEADLINE_SECONDS}&workers=2", PAGE_BYTES)
        opened.append(Service(store, page_bytes=PAGE_BYTES, pace_seconds=PACE_SECONDS, **{**QUICK, **limits}))
        return opened[-1]

    yield build
    for service in opened:
        service.close()
    give_up_at = time.monotonic() + 2 * DEADLINE_SECONDS
    while threading.active_count() > before and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert threading.active_count() <= before


def fill(service: Service) -> None:
    """Serve all families once, so that the store has their pages."""
    service.attach()
    service.serve(FAMILIES)
    service.drain()
    assert service.engine.stats().stored_pages == len(FAMILIES) * PROMPT_PAGES
    service.close()


def strike_in_the_first_read(store: WorkerStore, strike: Callable[[], None]) -> None:
    """Do it a moment after the first read has begun."""
    raw = store.blocking.raw
    fetch = raw.fetch

    def struck(*arguments):
        raw.fetch = fetch
        threading.Timer(0.001, strike).start()
        return fetch(*arguments)

    raw.fetch = struck


def assert_waits_are_budgeted(service: Service) -> None:
    """Nobody was held back for longer than the wait budget of one attempt says."""
    limits = service.config.limits
    budget = limits.wait_base_ticks + limits.wait_per_page_ticks * PROMPT_PAGES
    assert max(service.served.waited.values()) <= budget + 1


def run_into_it(service: Service) -> None:
    """Serve new prompts until the breaker has opened."""
    for wave in range(50):
        service.serve(range(100 + 4 * wave, 104 + 4 * wave))
        if service.breaker in (StoreState.OPEN, StoreState.PROBING):
            return
    pytest.fail("fifty waves of requests did not open the breaker")


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_an_outage_in_the_middle_of_a_read_costs_time_and_nothing_else(server, open_service, fault):
    """Right bytes and no failed request while it is away and when it is back; then it is used again."""
    fill(open_service(server.url, **PATIENT))
    service = open_service(server.url)
    service.attach()
    strike_in_the_first_read(service.store, server.kill if fault == "killed" else server.stop)
    try:
        service.serve(FAMILIES)
        assert service.served.store_hit_tokens < len(FAMILIES) * PROMPT_PAGES * PAGE_SIZE
        run_into_it(service)
        (late,) = service.serve([99])
        assert service.served.waited[late] <= 1
    finally:
        server.go_on()
    assert service.breaches() == []
    assert_waits_are_budgeted(service)
    if fault == "killed" and server.slow_to_return:
        return
    if fault == "killed":
        server.come_back()
    service.until(lambda: service.breaker is StoreState.HEALTHY)
    service.serve(range(400, 406))
    service.drain()
    assert service.breaches() == []
    after = open_service(server.url, **PATIENT)
    after.attach()
    after.serve(range(400, 406))
    assert after.breaches() == []
    assert after.served.store_hit_tokens > 0  # not all: writes of the outage still had their places in the backlog
