"""Hits that end at every page of a prompt, whatever the chunks behind them: no bit differs from the same calls."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.components.swa import SWA
from stagehold.serving.model.random_models import FAMILIES
from stagehold.specs.outcomes import HostMode

PAGE, PAGES, WINDOW_PAGES = 4, 12, 4
SLIDING = ("gemma3", "gpt_oss")
MODES = [
    pytest.param({"host_memory_mode": HostMode.CACHE}, id="cache"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.0}, id="buffer-bare"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.5}, id="buffer-caching"),
]
CHUNKS = [(1, 4), (3, 5), (7, 6), (10, 9), (16, 5), (64, 0)]
"""(tokens of a chunk, pages in the store)."""


def taken_over(family: str, pages: int) -> int:
    """Pages that a request compares before it computes: those of FULL, and of the window at their end."""
    return pages + (min(pages, WINDOW_PAGES) if family in SLIDING else 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_hit_may_end_at_any_page(family: str, mode: Any, bits: Any) -> None:
    """The store has the first pages only: none, 1, 2, and so on to all. buffer_only fetches no less than a window."""
    donor = bits.donor(family)
    for pages in range(PAGES + 1):
        tier = bits.tier(donor, chunk=16, **mode)
        tier.give(donor, pages)

        calls = tier.serve("a", donor.tokens)

        least = WINDOW_PAGES if family in SLIDING and mode["host_memory_mode"] is HostMode.BUFFER_ONLY else 1
        found = pages if pages >= least else 0
        assert (0, found) == tier.hit("a")
        assert bits.same(donor, calls), f"{pages} pages"
        seen = tier.witness.counts
        assert (0, 0, taken_over(family, found)) == (seen.wrong, seen.unknown, seen.compared)


@pytest.mark.parametrize("family", SLIDING)
def test_a_sliding_hit_ends_where_a_window_is_whole(family: str, bits: Any) -> None:
    """All pages of FULL are stored, and of the window those before one page: that is the one legal end."""
    donor = bits.donor(family)
    for end in range(WINDOW_PAGES, PAGES + 1):
        tier = bits.tier(donor, chunk=16, host_memory_mode=HostMode.BUFFER_ONLY)
        tier.give(donor, PAGES, components=[FULL])
        tier.give(donor, end, end - WINDOW_PAGES, components=[SWA])

        calls = tier.serve("a", donor.tokens)

        assert (0, end) == tier.hit("a")
        assert bits.same(donor, calls), f"a window before page {end}"
        assert (0, 0) == (tier.witness.counts.wrong, tier.witness.counts.unknown)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_from_the_wrong_place_of_staging_is_seen(family: str, bits: Any) -> None:
    """Planted: the last page of a splice comes from the staging page before its own. Logits and bytes tell."""
    donor = bits.donor(family)
    tier = bits.tier(donor, chunk=16)
    for component in donor.built.pages:
        tier.plant(component, lambda pages: [*pages[:-1], pages[-2]])
    tier.give(donor, 9)

    calls = tier.serve("a", donor.tokens)

    assert (0, 9) == tier.hit("a")
    assert not bits.same(donor, calls)
    assert (1 + (family in SLIDING), 0) == (tier.witness.counts.wrong, tier.witness.counts.unknown)


@pytest.mark.parametrize(("chunk", "pages"), CHUNKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_may_end_anywhere(family: str, chunk: int, pages: int, bits: Any) -> None:
    """Single tokens, odd numbers of them, and the whole prompt, behind a hit and without one."""
    donor = bits.donor(family)
    tier = bits.tier(donor, chunk=chunk)
    tier.give(donor, pages)

    calls = tier.serve("a", donor.tokens)

    first, prompt = pages * PAGE, len(donor.tokens)
    ends = [*range(first, prompt, chunk), prompt, prompt + 1, prompt + 2]
    assert ends == bits.edges(calls)
    assert bits.same(donor, calls)
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("chunk", [7, 10, 48])
@pytest.mark.parametrize("family", FAMILIES)
def test_pages_that_odd_chunks_made_are_gone_on_from(family: str, chunk: int, bits: Any) -> None:
    """What the store has was computed by chunks that crossed its pages; the calls behind it are those of the donor."""
    donor = bits.donor(family, chunk)
    for pages in (4, 7, 11):
        tier = bits.tier(donor, chunk=chunk)
        tier.give(donor, pages)

        calls = tier.serve("a", donor.tokens)

        assert (0, pages) == tier.hit("a")
        assert donor.resumed(calls)
        assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("chunk", [5, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_tier_the_bits_are_those_of_plain_tensors(family: str, chunk: int, bits: Any) -> None:
    """What all others are held against, and an engine that is switched off, say the same: cold, and warm."""
    donor = bits.donor(family, chunk)
    tier = bits.tier(donor, chunk=chunk, off=True)

    cold, warm = tier.serve("cold", donor.tokens), tier.serve("warm", donor.tokens)

    assert [(0, 0), (PAGES, 0)] == [tier.hit(rid) for rid in ("cold", "warm")]
    assert bits.same(donor, cold)
    assert donor.resumed(warm)


class Forgetful:
    """Planted: between two chunks the page that both have tokens in loses what it had."""

    def __init__(self, inner: Any, pools: Any) -> None:
        self._inner, self._pools = inner, pools

    def forward(self, batch: Any) -> list[int]:
        for work in batch:
            if work.first % PAGE:
                self._pools[FULL][:, int(work.slots[work.first // PAGE])] = 0
        found: list[int] = self._inner.forward(batch)
        return found

    def read(self, work: Any) -> None:
        self._inner.read(work)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_page_that_is_lost_between_two_chunks_is_seen(family: str, bits: Any) -> None:
    """Only chunks that end within a page would lose it: those of 7 do, those of 8 do not."""
    donor = bits.donor(family)
    found = []
    for chunk in (7, 8):
        tier = bits.tier(donor, chunk=chunk, wrap=Forgetful)
        tier.give(donor, 4)
        calls = tier.serve("a", donor.tokens, answer=1)
        found.append(bits.same(donor, calls))

    assert [False, True] == found
