"""K73: fetches were launched on a node that was remembered and not protected; hundreds of spans were read and dropped.

Here nothing remembers a node. The anchor is matched anew on the request's own tokens right before the IO, pinned with
it, and a hold whose anchor went ends before a byte was read.
"""

from __future__ import annotations

import random

from stagehold import RequestState


def test_anchors_evicted_before_io_commit_cost_no_read(hand):
    """A hundred requests, each of whose anchors goes between question and answer."""
    h = hand()
    for number in range(100):
        tokens = h.prompt(8, number + 1)
        h.put(tokens, 4, 8)
        h.grow(tokens, 4)
        a = h.arrive(f"r{number}", tokens)
        h.tick()
        h.shrink(tokens, 0)
        h.tick()
        assert RequestState.LOOKUP is h.engine.state_of(a)
        h.engine.abort(a)
    stats = h.engine.stats()
    assert (0, 100 * 64) == (stats.fetched, stats.losses["lost"])
    h.tick()
    assert 100 == h.taken("hold.parked.io_commit.LOST")


def test_what_is_fetched_behind_a_pin_is_spliced(hand):
    """Evictions, splits and sibling inserts at every tick: only what a sibling published meanwhile is dropped."""
    h = hand(device_pages=200, staging_pages=200, pin_fraction=0.8)
    dice = random.Random(5)
    for number in range(80):
        tokens = h.prompt(8, number + 1, shared=3)
        h.put(tokens, 3, 8)
        h.grow(tokens, 3)
        a = h.arrive(f"r{number}", tokens)
        for _ in range(4):
            h.tick()
            h.grow(h.prompt(4, 200 + dice.randint(0, 50), shared=dice.randint(0, 3)), 4)
            h.core.tree.evict(dice.randint(0, 12))
        h.until(lambda a=a: getattr(h.visit(a), "admitted", False), patience=100)
        h.engine.finish(a)
    stats = h.engine.stats()
    assert stats.fetched - stats.spliced == stats.losses.get("covered", 0) < stats.spliced


def test_a_decline_is_free(hand):
    """No store operation and no resource; the reason has a counter."""
    h = hand(staging_pages=10, load_limit_fraction=0.5, query_limit=2)
    h.store.stall()
    handles = [h.arrive(f"r{number}", h.prompt(8, number + 1)) for number in range(10)]
    h.tick()
    assert {"query": 2} == h.books()
    assert 8 == h.engine.stats().declines["query_rate"]
    assert 2 == len(h.store.in_flight())
    assert all(h.engine.state_of(handle) is RequestState.RETRY for handle in handles[2:])
