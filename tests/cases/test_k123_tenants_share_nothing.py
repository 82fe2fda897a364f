"""K123: the salt was ignored by the shared tier: one tenant read 25,100 pages of another.

Here the namespace (model, adapter, salt) is the root of every key: two tenants with the same tokens have no key in
common, in the tree, in host memory, or in a store.
"""

from __future__ import annotations

import dataclasses

import pytest

from stagehold import HostMode
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.stores.simulated import Medium, SimulatedStore
from stagehold.testing.service import PAGE_SIZE, PROMPT_PAGES, Service, prompt

A = Namespace("model", extra_key="adapter", cache_salt="tenant a")
OTHERS = [
    dataclasses.replace(A, cache_salt="tenant b"),
    dataclasses.replace(A, extra_key="another adapter"),
    dataclasses.replace(A, model="another model"),
    Namespace("model", extra_key="adapter" + "tenant a"),
    Namespace("modeladapter", extra_key="", cache_salt="tenant a"),
]
WHOLE = PROMPT_PAGES * PAGE_SIZE


@pytest.mark.parametrize("other", OTHERS)
def test_tenants_have_no_key_in_common(other: Namespace) -> None:
    """Whatever part of the namespace differs, and wherever one field ends and the next begins."""
    keys = [
        {chain.page_key(page) for page in range(chain.n_pages)}
        for chain in (Chain(namespace, prompt(1), PAGE_SIZE) for namespace in (A, other))
    ]
    assert len(keys[0]) == PROMPT_PAGES
    assert not keys[0] & keys[1]


def hits(service: Service, namespace: Namespace) -> tuple[int, int]:
    """Tokens of one prompt that came from the device, and from below it."""
    before = service.served.device_hit_tokens, service.served.store_hit_tokens
    service.serve([1], namespace)
    return service.served.device_hit_tokens - before[0], service.served.store_hit_tokens - before[1]


@pytest.mark.parametrize("other", OTHERS[:2])
def test_a_tenant_finds_nothing_of_another_on_the_device(other: Namespace) -> None:
    """The one who wrote it does."""
    with Service(SimulatedStore(), page_bytes=1024) as service:
        service.attach()
        service.serve([1], A)
        assert hits(service, other) == (0, 0)
        assert hits(service, A)[0] == WHOLE
        assert service.breaches() == []


@pytest.mark.parametrize("other", OTHERS[:2])
def test_a_tenant_finds_nothing_of_another_in_the_store(other: Namespace) -> None:
    """A fresh engine on the same store, as another server has."""
    medium = Medium()
    with Service(SimulatedStore(medium=medium), page_bytes=1024) as service:
        service.attach()
        service.serve([1], A)
        service.drain()
    with Service(SimulatedStore(medium=medium), page_bytes=1024) as service:
        service.attach()
        assert hits(service, other) == (0, 0)
        assert hits(service, A) == (0, WHOLE)
        assert service.breaches() == []


@pytest.mark.parametrize("other", OTHERS[:2])
def test_a_tenant_finds_nothing_of_another_in_host_memory(other: Namespace) -> None:
    """After the device has been used up by others, and with a store that has lost everything."""
    store = SimulatedStore()
    with Service(store, page_bytes=1024, mode=HostMode.CACHE, staging_pages=512) as service:
        service.attach()
        service.serve([1], A)
        service.drain()
        for family in range(10, 40):
            service.serve([family], A)
        for name in list(store.medium.names()):
            store.drop(name)
        assert hits(service, other) == (0, 0)
        assert hits(service, A) == (0, WHOLE)
        assert service.breaches() == []


@pytest.mark.parametrize("other", OTHERS[:2])
def test_a_tenant_finds_nothing_of_another_in_the_page_cache(other: Namespace) -> None:
    """Pages that were read lately, in spare staging, after the store has lost all of them."""
    store = SimulatedStore()
    with Service(store, page_bytes=1024, staging_pages=512, page_cache_fraction=1.0) as service:
        service.attach()
        service.serve([1], A)
        service.drain()
        service.engine.flush()
        assert hits(service, A) == (0, WHOLE)  # read from the store
        for family in range(10, 40):
            service.serve([family], A)
        service.drain()
        for name in list(store.medium.names()):
            store.drop(name)
        assert hits(service, other) == (0, 0)
        assert hits(service, A) == (0, WHOLE)
        assert service.breaches() == []


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("mode", list(HostMode))
def test_tenants_with_the_same_prompts_at_once_share_nothing(mode: HostMode, share: float) -> None:
    """Side by side, crowded, in every tier: each hits what it has written itself, as if it were alone."""
    tenants = [A, *OTHERS[:2]]
    with Service(SimulatedStore(), page_bytes=1024, mode=mode, page_cache_fraction=0.5, tenant_share=share) as service:
        service.attach()
        for _ in range(3):
            for tenant in tenants:
                service.submit(range(4), tenant)
            service.until(lambda: service.scheduler.idle)
            service.drain()
        hit = service.served.device_hit_tokens + service.served.store_hit_tokens
        assert 0 < hit <= 2 * len(tenants) * 4 * WHOLE  # the first round of each finds nothing
        assert service.breaches() == []
