"""Calls that nobody should make: each is refused by name, and nothing has changed."""

from __future__ import annotations

import numpy as np
import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import SWA, SlidingWindow
from stagehold.cache.errors import CacheRefused, ReceiptRefused, SlotRefused, SpanRefused
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.pools import Pool
from stagehold.cache.tree import Tree

PAGE = 16
SPACE = Namespace("m")


def grown(pages: int, *, live: int | None = None) -> tuple[Tree, Chain]:
    """A checked tree of three components that holds the first `live` pages of a chain of `pages`."""
    pools = {FULL: Pool(32, FULL), SWA: Pool(32, SWA), STATE: Pool(8, STATE)}
    tree = Tree(PAGE, pools, components=(SlidingWindow(2), Checkpoints()), checked=True)
    chain = Chain(SPACE, np.arange(pages * PAGE), PAGE)
    live = pages if live is None else live
    if live:
        tree.insert(chain, 0, live, {name: pool.alloc(1 if name == STATE else live) for name, pool in pools.items()})
    return tree, chain


@pytest.mark.parametrize("live", [0, 4])
def test_a_removal_from_before_the_root_is_refused(live):
    """Neither the root nor the place of a namespace that was never seen is a leaf that may go."""
    tree, chain = grown(4, live=live)
    with pytest.raises(SpanRefused, match="-1"):
        tree.remove(chain, -1)
    tree.check()
    assert live == tree.total


@pytest.mark.parametrize("component", [FULL, SWA, STATE])
def test_nothing_is_missing_before_the_root(component):
    """A span that starts before page 0 is none, whatever component is asked for it."""
    tree, chain = grown(4)
    with pytest.raises(SpanRefused, match="-1"):
        tree.missing(chain, -1, 3, component)


@pytest.mark.parametrize("component", [FULL, SWA, STATE])
@pytest.mark.parametrize("live", [0, 4])
def test_an_empty_span_has_no_slots_and_no_holes(component, live):
    """In a namespace that was never seen, and at any boundary of one that was."""
    tree, chain = grown(4, live=live)
    for at in {0, live}:
        assert ([], []) == (tree.slots(chain, at, at, component), tree.missing(chain, at, at, component))


def test_a_hold_for_a_load_that_is_refused_has_split_nothing():
    """The end of its span is looked at before its start becomes a boundary."""
    tree, chain = grown(4, live=3)
    before = tree.digest()
    with pytest.raises(SpanRefused):
        tree.hold_span(chain, 1, 4, load=True)
    assert before == tree.digest()


def test_a_pin_of_one_tree_is_no_lock_of_another():
    """Though number and length are the same: neither way round, and the protection stays."""
    (one, chain), (two, _) = grown(4), grown(4)
    pin, lock = one.pin(chain, 4), two.lock(chain, 4)
    assert pin[1:] == lock[1:]
    with pytest.raises(ReceiptRefused):
        one.unlock(lock)
    with pytest.raises(ReceiptRefused):
        two.unpin(pin)
    for tree in (one, two):
        tree.check()
        assert (0, 0) == (tree.evict(4), tree.evictable)


@pytest.mark.parametrize("count", [4, 100])
def test_a_pool_that_was_asked_for_half_a_slot_has_lost_none(count):
    """Below the size at which numpy takes over, and above it."""
    pool = Pool(2 * count, "p")
    with pytest.raises(TypeError):
        pool.alloc(float(count))
    assert list(range(2 * count)) == pool.alloc(2 * count)


@pytest.mark.parametrize(
    "wrong", [lambda slots: [float(slot) for slot in slots], set, lambda slots: [2**70, *slots[1:]]]
)
def test_a_pool_takes_back_whole_slots_or_none(wrong):
    """What is no row of slot numbers leaves the pool as it was."""
    pool = Pool(200, "p")
    slots = pool.alloc(100)
    with pytest.raises((SlotRefused, TypeError)):
        pool.free(wrong(slots))
    pool.check({"caller": slots})


@pytest.mark.parametrize("page_size", [0, -16, 3, 63, 1 << 32, 16.0, "16", None])
def test_a_page_size_that_cannot_be_is_refused_by_name(page_size):
    """Also one that is no whole number."""
    with pytest.raises(CacheRefused, match=f"page size {page_size!r}"):
        Chain(SPACE, [1], page_size)


@pytest.mark.parametrize("part", [5, None, b"m", "\ud800"])
def test_a_namespace_is_text(part):
    """That every process writes alike."""
    with pytest.raises(CacheRefused, match="namespace: expected text"):
        Namespace("m", cache_salt=part)


def test_ragged_tokens_are_refused_like_other_shapes():
    """Not with numpy's words alone."""
    with pytest.raises(CacheRefused, match="tokens: expected one row"):
        Chain(SPACE, [[1, 2], [3]], PAGE)


def test_the_tokens_of_a_chain_cannot_be_written():
    """Its keys were made from them, and would name other tokens from then on."""
    with pytest.raises(ValueError, match="read-only"):
        Chain(SPACE, [1, 2, 3], PAGE).tokens[0] = 9
