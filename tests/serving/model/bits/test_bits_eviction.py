"""Pages that left the device, or the store, and came back: host modes, page cache, and pools that hold too little."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold.cache.components.full import FULL
from stagehold.serving.model.random_models import FAMILIES
from stagehold.specs.outcomes import HostMode

PAGE, PAGES = 4, 12
MODES = [
    pytest.param({"host_memory_mode": HostMode.CACHE}, id="cache"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.0}, id="buffer-bare"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.5}, id="buffer-caching"),
]


def read_once(donor: Any, bits: Any, **mode: Any) -> Any:
    """A request has had all pages from the store; then neither device nor store has any."""
    tier = bits.tier(donor, chunk=16, **mode)
    tier.give(donor, PAGES)
    tier.serve("first", donor.tokens)
    tier.forget()
    for component in donor.built.pages:
        for name in tier.hand.names(donor.tokens, component=component):
            tier.hand.store.drop(name)
    return tier


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_what_host_memory_keeps_comes_back_without_the_store(family: str, mode: Any, bits: Any) -> None:
    """Pages that were read once are in host memory, but where it is a buffer without a page cache."""
    donor = bits.donor(family)
    tier = read_once(donor, bits, **mode)
    bare = mode.get("page_cache_fraction") == 0.0

    calls = tier.serve("again", donor.tokens)

    assert (0, 0 if bare else PAGES) == tier.hit("again")
    assert (0 if bare else PAGES * PAGE) == tier.engine.stats().local
    assert bits.same(donor, calls)
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_pages_that_host_memory_mistakes_are_seen(family: str, bits: Any) -> None:
    """Planted: two pages that it kept have changed places."""
    donor = bits.donor(family)
    tier = read_once(donor, bits, host_memory_mode=HostMode.CACHE)
    tier.plant(FULL, lambda pages: [pages[1], pages[0], *pages[2:]])

    calls = tier.serve("again", donor.tokens)

    assert (0, PAGES) == tier.hit("again")
    assert [("again", FULL, 0), ("again", FULL, 1)] == tier.witness.counts.wrong_pages
    assert not bits.same(donor, calls)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*FAMILIES, "sliding states"])
def test_evicted_prefixes_come_back_with_their_bits(name: str, mode: Any, bits: Any) -> None:
    """Four prompts of 12 pages, twice over, on a device of 20: each is evicted by those behind it.

    Nothing is stored but what the requests publish, and nothing is witnessed but what they compute.
    """
    donors = bits.crowd(name)
    tier = bits.tier(name, device_pages=20, **mode)
    for turn in (1, 2):
        for rid, donor in donors.items():
            calls = tier.serve(f"{rid} {turn}", donor.tokens)
            assert bits.same(donor, calls), f"{rid} {turn}"

    hits = {rid: tier.hit(f"{rid} 2") for rid in donors}
    assert dict.fromkeys(donors, PAGES) == {rid: device + below for rid, (device, below) in hits.items()}
    assert all(below >= 6 for _, below in hits.values())
    assert 6 == sum(tier.hit("branch 1"))
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_page_under_eviction_is_seen(family: str, bits: Any) -> None:
    """Planted: the last page of every splice is the one before it. The first time round nothing is spliced."""
    donors = bits.crowd(family)
    tier = bits.tier(family, device_pages=20)
    tier.plant(FULL, lambda pages: [*pages[:-1], pages[-2]])
    found = [[bits.same(d, tier.serve(f"{rid} {turn}", d.tokens)) for rid, d in donors.items()] for turn in (1, 2)]

    assert [[True] * 4, [False] * 4] == found
    assert 4 == tier.witness.counts.wrong
