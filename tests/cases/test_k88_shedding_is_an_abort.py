"""K88: requests that were shed for others of higher priority went on prefetching.

They held staging, pins and the store's attention for a result that nobody would use. Here shedding is an abort: what
has not begun never begins, and what flies is the last that is heard of it.
"""

from __future__ import annotations

import pytest

from stagehold.testing.hand import SLOW_GETS


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 12])
@pytest.mark.parametrize("stored", [True, False])
def test_nothing_begins_for_a_request_that_was_shed(hand, after, stored):
    """In any state: no lookup, no retry, no fetch, in the next hundred ticks."""
    h = hand()
    tokens = h.prompt(8)
    if stored:
        h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(after)
    h.engine.abort(a)
    begun = h.core.operations._next
    h.tick(100)
    assert (begun, {}) == (h.core.operations._next, h.books())


def test_a_parked_fetch_of_a_shed_request_is_never_sent(hand):
    """It leaves its place to those who stay."""
    h = hand(staging_pages=10, load_limit_fraction=1.0, delays=SLOW_GETS)
    for name, family in (("first", 1), ("shed", 2)):
        h.put(h.prompt(8, family))
        handle = h.arrive(name, h.prompt(8, family))
        h.tick(2)
    fetched = h.engine.stats().fetched
    h.engine.abort(handle)
    h.tick(150)
    assert fetched == h.engine.stats().fetched


def test_shedding_frees_pins_at_once_and_staging_at_the_end_of_io(hand):
    """Those who stay can be served meanwhile."""
    h = hand(delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.engine.abort(a)
    assert (0, {"staging": 5, "io": 1}) == (h.core.tree.pinned, h.books())
    h.tick(100)
    assert {} == h.books()


def test_shedding_one_of_two_that_share_a_fetch_leaves_it_to_the_other(hand):
    """The claim goes, not the hold."""
    h = hand()
    h.put(h.prompt(8))
    shed, stays = h.arrive("shed", h.prompt(8)), h.arrive("stays", h.prompt(8))
    h.tick(2)
    h.engine.abort(shed)
    h.tick()
    assert 128 == h.admit(stays).store_hit_tokens
