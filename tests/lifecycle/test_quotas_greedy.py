"""Two tenants with the same prompts, one of them greedy: what the other is guaranteed serves it as if it were alone.

Hits of the small tenant are compared with those that it has alone, in an engine whose host memory is as large as what
it is guaranteed. Without a share the same traffic starves it, so that each figure can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stagehold import HostMode, Namespace
from stagehold.cache.components.full import FULL
from stagehold.cache.keys import Chain, object_name
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.testing.service import PAGE_SIZE, PROMPT_PAGES, Service, prompt

GREEDY, SMALL = Namespace("model", cache_salt="greedy"), Namespace("model", cache_salt="small")
FAMILIES = range(3)
WHOLE = PROMPT_PAGES * PAGE_SIZE * len(FAMILIES)
STAGING, SHARE = 128, 0.25
GUARANTEED = int(SHARE * STAGING)
QUEUE = range(30)
SLOW = Delays(exists=(1, 2), get=(12, 20), put=(4, 8))


@dataclass
class Two:
    """A service of two tenants: tokens that hits brought and requests that finished, by tenant."""

    service: Service
    hits: Counter[str] = field(default_factory=Counter)
    _whose: dict[str, str] = field(default_factory=dict)

    @property
    def core(self):
        return self.service.engine._parts.core

    def submit(self, families: range, whose: Namespace) -> None:
        self._whose.update(dict.fromkeys(self.service.submit(families, whose), whose.cache_salt))

    def step(self) -> None:
        for one in self.service.step().admitted:
            self.hits[self._whose[one.rid]] += one.admission.hit_tokens

    def until(self, done: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        for _ in range(20_000):
            if done():
                return
            self.step()
            each()
        raise AssertionError("it did not end")

    def serve(self, families: range, whose: Namespace, each: Callable[[], None] = lambda: None) -> int:
        """Tokens that hits brought these requests."""
        before = self.hits[whose.cache_salt]
        self.submit(families, whose)
        self.until(lambda: self.service.scheduler.idle, each)
        return self.hits[whose.cache_salt] - before

    def owned(self, whose: Namespace) -> int:
        """Staging pages of a tenant."""
        return self.core.stocks.spine.staging.tenancy.owned.get(whose.digest(PAGE_SIZE), 0)


def two(mode: HostMode, share: float, staging: int = STAGING, pages_per_tick: int | None = None) -> Two:
    store = SimulatedStore(delays=SLOW, pages_per_tick=pages_per_tick)
    service = Service(store, page_bytes=1024, pace_seconds=0.0, mode=mode, staging_pages=staging, tenant_share=share)
    service.attach()
    return Two(service)


def forget(service: Service) -> None:
    """The store has lost everything."""
    for name in list(service.store.medium.names()):
        service.store.drop(name)


def alone(mode: HostMode) -> int:
    """Tokens that the small tenant's second round hits with nobody else there, in what it is guaranteed."""
    run = two(mode, 0.0, GUARANTEED)
    with run.service as service:
        assert run.serve(FAMILIES, SMALL) == 0
        service.drain()
        return run.serve(FAMILIES, SMALL)


@pytest.mark.parametrize("share", [0.0, SHARE])
def test_a_flood_of_writes_leaves_host_memory_what_is_guaranteed(share: float) -> None:
    """The greedy tenant computes ten times what host memory has room for; the small one comes back afterwards."""
    run = two(HostMode.CACHE, share)
    with run.service as service:
        run.serve(FAMILIES, SMALL)
        service.drain()
        kept: list[int] = []

        def look() -> None:
            if share:
                kept.append(run.owned(SMALL))

        for start in range(0, 160, 16):
            run.serve(range(start, start + 16), GREEDY, look)
            service.drain()
        forget(service)
        hits = run.serve(FAMILIES, SMALL)
        assert service.breaches() == []
    if share:
        assert min(kept) >= WHOLE // PAGE_SIZE
        assert hits == alone(HostMode.CACHE) == WHOLE
    else:
        assert hits == 0


@pytest.mark.parametrize("mode", HostMode)
@pytest.mark.parametrize("share", [0.0, SHARE])
def test_a_deep_queue_of_fetches_leaves_room_for_others(mode: HostMode, share: float) -> None:
    """All that both tenants ask for is stored, the store is slow, and the greedy one has asked first."""
    run = two(mode, share)
    with run.service as service:
        for tenant in (SMALL, GREEDY):
            for start in range(0, len(QUEUE), 10):
                run.serve(range(start, start + 10), tenant)
                service.drain()
        service.engine.flush()
        run.submit(QUEUE, GREEDY)
        for _ in range(6):
            run.step()
        before = run.hits["small"]
        run.submit(FAMILIES, SMALL)
        run.until(lambda: service.scheduler.idle)
        hits = run.hits["small"] - before
        refused = service.engine.stats().refused_for_tenants
        assert service.breaches() == []
    assert hits == (alone(mode) if share else 0), refused


def stored(service: Service, whose: Namespace) -> int:
    """Pages of the small tenant's prompts that the store has of a tenant."""
    chains = [Chain(whose, prompt(family), PAGE_SIZE) for family in FAMILIES]
    names = [object_name(chain.page_key(page), component=FULL) for chain in chains for page in range(PROMPT_PAGES)]
    return sum(name in service.store.medium for name in names)


@pytest.mark.parametrize("mode", HostMode)
@pytest.mark.parametrize("share", [0.0, SHARE])
def test_a_burst_of_writes_leaves_the_store_to_others(mode: HostMode, share: float) -> None:
    """The backlog is full of the greedy tenant's pages, and the store takes one page a tick; it goes on computing."""
    run = two(mode, share, pages_per_tick=1)
    with run.service as service:
        service.engine.arrive("guest", prompt(9)[:2], SMALL, 1)  # it is there before the burst
        run.submit(range(100, 160), GREEDY)
        run.until(lambda: service.engine.stats().backlog_pages > 180)
        run.serve(FAMILIES, SMALL)
        for start in range(200, 600, 40):
            run.submit(range(start, start + 40), GREEDY)
            for _ in range(40):
                run.step()
        assert service.engine.stats().backlog_pages > 100
        assert stored(service, GREEDY) == 0  # the same prompts, which it has not computed
        assert stored(service, SMALL) == (WHOLE // PAGE_SIZE if share else 0)
        service.scheduler.abort_all()


@pytest.mark.parametrize("share", [0.0, SHARE])
def test_what_a_tenant_is_guaranteed_stays_on_the_device_while_others_have_more(share: float) -> None:
    """The greedy tenant computes ten times what the device has room for."""
    run = two(HostMode.CACHE, share)
    with run.service as service:
        run.serve(FAMILIES, SMALL)
        service.drain()
        for start in range(0, 160, 8):  # half of the device is promised at most: who runs leaves the other half
            run.serve(range(start, start + 8), GREEDY)
        on_device = run.core.tree.full_match(Chain(SMALL, prompt(0), PAGE_SIZE), PROMPT_PAGES)
        assert on_device == (PROMPT_PAGES if share else 0)
        assert service.breaches() == []


@pytest.mark.parametrize("share", [0.0, SHARE])
def test_a_page_cache_has_room_for_who_comes_late(share: float) -> None:
    """The greedy tenant's prompts, no more than it is guaranteed, fill it; what the small one fetches then is kept."""
    service = Service(
        SimulatedStore(delays=SLOW), page_bytes=1024, pace_seconds=0.0, staging_pages=STAGING,
        page_cache_fraction=SHARE, tenant_share=2 * share,
    )  # fmt: skip
    service.attach()
    run = Two(service)
    with service:
        for tenant, families in ((SMALL, range(2)), (GREEDY, range(6))):
            run.serve(families, tenant)
            service.drain()
        service.engine.flush()
        run.serve(range(6), GREEDY)
        fetched = []
        for _ in range(2):
            before = run.core.fetched_tokens
            run.serve(range(2), SMALL)
            fetched.append((run.core.fetched_tokens - before) // PAGE_SIZE)
            run.core.tree.evict(service.config.device_pages)
        assert service.breaches() == []
    assert fetched == [2 * PROMPT_PAGES, 0]
