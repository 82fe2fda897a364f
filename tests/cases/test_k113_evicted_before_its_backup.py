"""K113: with write-through, first-seen prefixes never reached the store: they were evicted before their backup.

Five long prompts through a small pool, and a restart found none. Here the copy of a publication begins in the next
tick and nothing under a copy can be evicted; what goes before its copy has begun is counted in pages, is believed by
nobody, and is offered again by the next request that computes or uses it.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.simulated import Delays
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand

SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(6, 6))
PAGES = 16


def persisted(h: Hand, families: int) -> list[int]:
    """Pages of each prompt that a restart would find."""
    found = []
    for family in range(1, families + 1):
        there = [h.store.contains(name) for name in h.names(h.prompt(PAGES, family))]
        found.append(there.index(False) if False in there else PAGES)
    return found


def five_prompts(h: Hand) -> None:
    """Each fills a good part of the pool, so that it pushes out those before it."""
    for family in range(1, 6):
        h.run(f"r{family}", h.prompt(PAGES, family))
        h.tick(2)
    h.until(lambda: not h.core.writes)


def test_first_seen_prefixes_are_all_persisted(hand):
    """Five prompts of sixteen pages through a pool of forty; puts take longer than the prompts."""
    h = hand(device_pages=40, staging_pages=80, delays=SLOW_PUTS)
    five_prompts(h)
    assert [PAGES] * 5 == persisted(h, 5)
    stats = h.engine.stats()
    assert (0, 0) == (stats.dropped_pages, stats.evicted_unwritten_pages)


def test_a_writer_that_starts_late_loses_them_and_says_so(hand, monkeypatch):
    """Planted: no write begins while prompts come. The loss is a figure, page for page."""
    from stagehold.lifecycle.tick import Tick

    start = Tick._start_writes
    monkeypatch.setattr(Tick, "_start_writes", lambda _self: None)
    h = hand(device_pages=40, staging_pages=80)
    for family in range(1, 6):
        h.run(f"r{family}", h.prompt(PAGES, family))
        h.tick(2)
    monkeypatch.setattr(Tick, "_start_writes", start)
    h.core.news += 1
    h.until(lambda: not h.core.writes)
    stats = h.engine.stats()
    lost = 5 * PAGES - sum(persisted(h, 5))
    assert lost > PAGES
    assert lost == stats.dropped_pages + stats.evicted_unwritten_pages


@pytest.mark.parametrize("how", ["computed again", "used again"])
def test_what_was_lost_is_offered_again(hand, how):
    """By whoever brings its pages back, or finds them."""
    h = hand()
    tokens = h.prompt(8)
    h.run("a", tokens)
    h.shrink(tokens, 0)
    h.tick()
    assert 8 == h.engine.stats().dropped_pages
    if how == "used again":
        h.grow(tokens, 8)
    h.run("b", tokens)
    h.until(lambda: not h.core.writes)
    assert all(h.store.contains(name) for name in h.names(tokens))


def test_nothing_under_a_copy_is_evicted(hand):
    """Whatever the pressure; after the copy its bytes are in staging and it may go."""
    h = hand(delays=SLOW_PUTS)
    h.run("a", tokens := h.prompt(8))
    h.tick()
    assert {WriteState.COPYING} == {w.state for w in h.core.writes.values()}
    assert 0 == h.core.tree.evict(8)
    h.tick()
    assert 8 == h.core.tree.evict(8)
    h.until(lambda: not h.core.writes)
    assert all(h.store.contains(name) for name in h.names(tokens))
