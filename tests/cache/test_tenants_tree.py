"""Whose pages leave the device first: those of tenants that have more than they are guaranteed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stagehold.cache.components.full import SPINE
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.orders import eviction_order
from stagehold.cache.pools import Pool
from stagehold.cache.snapshot import nodes_of
from stagehold.cache.tenants import Quota
from stagehold.cache.tree import LEAVES_LOOKED_AT, Tree
from stagehold.specs.outcomes import Eviction

PAGE = 4
SPACES = [Namespace("m", cache_salt=salt) for salt in "abc"]
A, B, C = (space.digest(PAGE) for space in SPACES)


def tree_of(pages: int, fraction: float = 0.25, order: Eviction = Eviction.LRU) -> tuple[Tree, Pool]:
    """A device of so many pages that three tenants share."""
    pool = Pool(pages, "device")
    tree = Tree(PAGE, {SPINE: pool}, order=eviction_order(order, pages))
    active = dict.fromkeys((A, B, C), 0)
    tree.quota = Quota(pages, fraction, active)
    tree.quota.settle(A)
    return tree, pool


def chain_of(whose: int, family: int, pages: int) -> Chain:
    return Chain(SPACES[whose], np.arange(pages * PAGE, dtype=np.uint32) + np.uint32(family * 10_000), PAGE)


def grow(tree: Tree, pool: Pool, whose: int, family: int, pages: int) -> Chain:
    """A prompt of a tenant is published, with evictions as needed."""
    chain = chain_of(whose, family, pages)
    live = tree.full_match(chain, pages)
    if live < pages:
        receipt = tree.lock(chain, live)
        tree.evict(pages - live - pool.free_count)
        slots = pool.alloc(pages - live)
        assert slots is not None
        duplicates = tree.insert(chain, live, pages, {SPINE: slots}).duplicates
        pool.free(duplicates.get(SPINE, []))
        tree.unlock(receipt)
    return chain


@pytest.mark.parametrize("order", Eviction)
def test_a_flood_of_one_tenant_evicts_its_own_pages(order):
    """Eight of 32 pages are another one's, used before all others; each prompt of the flood has four."""
    tree, pool = tree_of(32, order=order)
    small = [grow(tree, pool, 1, family, 4) for family in (1, 2)]
    for family in range(10, 40):
        grow(tree, pool, 0, family, 4)
    assert [tree.full_match(chain, 4) for chain in small] == [4, 4]
    assert tree.quota.used == {A: 24, B: 8}
    tree.check()


def test_only_what_a_tenant_has_beyond_its_own_goes_first():
    """Twelve pages, of which eight are its own: the last four of them, though it is one leaf and the oldest."""
    tree, pool = tree_of(32)
    chain = grow(tree, pool, 1, 1, 12)
    grow(tree, pool, 0, 2, 20)
    tree.evict(6)
    assert tree.quota.used == {A: 18, B: 8}
    assert tree.full_match(chain, 12) == 8


def test_where_nobody_has_more_than_its_own_the_order_alone_decides():
    """And where those who have are protected: what can be evicted is, so that what was promised can be had."""
    tree, pool = tree_of(32)
    old = grow(tree, pool, 1, 1, 8)
    large = grow(tree, pool, 0, 2, 24)
    receipt = tree.lock(large, 24)
    tree.evict(3)
    assert (tree.full_match(old, 8), tree.full_match(large, 24)) == (5, 24)
    tree.unlock(receipt)


def test_what_goes_next_is_told_in_that_order():
    """For whoever writes pages before they leave."""
    tree, pool = tree_of(32)
    grow(tree, pool, 1, 1, 8)
    large = grow(tree, pool, 0, 2, 12)
    grow(tree, pool, 0, 3, 4)
    assert tree.next_out(4)[0] == tree.slots(large, 0, 12)


@pytest.mark.parametrize(("before", "loser"), [(LEAVES_LOOKED_AT - 1, A), (LEAVES_LOOKED_AT, B)],
                         ids=["found", "too far"])  # fmt: skip
def test_a_look_for_them_is_bounded(before, loser):
    """Behind so many older leaves that are others' own nobody looks: then the oldest goes."""
    tree, pool = tree_of(2 * before + 1)
    tree.quota.guaranteed = before
    for family in range(before):
        grow(tree, pool, 1, family, 1)
    for family in range(before + 1):
        grow(tree, pool, 0, family, 1)
    left = tree.quota.used | {loser: tree.quota.used[loser] - 1}
    tree.evict(1)
    assert tree.quota.used == left


@pytest.mark.parametrize("order", Eviction)
@pytest.mark.parametrize("seed", range(4))
def test_what_tenants_have_is_what_counting_anew_gives(seed, order):
    """Prompts with heads in common, splits, locks, removals and evictions."""
    dice = random.Random(seed)
    tree, pool = tree_of(40, order=order)
    held = []
    for _ in range(300):
        whose = dice.choice((0, 0, 1, 2))
        chain = grow(tree, pool, whose, dice.randrange(3), dice.randint(1, 5))
        if dice.random() < 0.3 and len(held) < 3:
            held.append(tree.lock(chain, tree.full_match(chain, dice.randint(1, chain.n_pages))))
        elif held and dice.random() < 0.5:
            tree.unlock(held.pop())
        if dice.random() < 0.1:
            tree.remove(chain, dice.randint(0, chain.n_pages))
        count: dict[bytes, int] = {}
        for node in nodes_of(tree):
            count[tree.tenant(node)] = count.get(tree.tenant(node), 0) + node.end - node.start
        assert tree.quota.used == count
    tree.check()
    for receipt in held:
        tree.unlock(receipt)
    tree.flush()
    assert tree.quota.used == {}
