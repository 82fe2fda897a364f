"""Slots that the holder of a lock counts on when it moves on, and that others hold as well."""

from __future__ import annotations

import random

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import SWA, SlidingWindow
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.pools import Pool
from stagehold.cache.tree import Tree
from stagehold.testing.tree_shape import text_tokens

PAGE = 64
TEXT = "abcdefgh"


def grown() -> tuple[Tree, Chain]:
    """Eight pages with windows of 3, all resident, and a checkpoint at the end."""
    pools = {FULL: Pool(20, FULL), SWA: Pool(20, SWA), STATE: Pool(5, STATE)}
    tree = Tree(PAGE, pools, components=(SlidingWindow(3), Checkpoints()), checked=True)
    chain = Chain(Namespace("model"), text_tokens(TEXT, PAGE), PAGE)
    slots = {FULL: pools[FULL].alloc(8), SWA: pools[SWA].alloc(8), STATE: pools[STATE].alloc(1)}
    tree.insert(chain, 0, 8, slots)
    tree.boundary(chain, 5)
    return tree, chain


OTHER, OWN = None, 0
"""A lock of somebody who found the pages there, and of one who published all of them."""

TABLE = [
    ([OTHER], 0, 0),
    ([OWN], 0, 3),  # the next one takes from the holder what it counts on
    ([OTHER, OTHER], 0, 0),
    ([OWN, OTHER], 3, 0),  # it will move on, and get nothing back
    ([OWN, OWN], 3, 3),  # one of the two will
    ([OWN, OWN, OTHER], 6, 0),
    ([OWN, OWN, OWN], 6, 3),
]


@pytest.mark.parametrize(("locks", "doubled", "cost"), TABLE)
def test_what_is_counted_on_twice(locks, doubled, cost):
    """And what the next lock would take from others, in any order of coming and going."""
    for order in (locks, locks[::-1]):
        tree, chain = grown()
        receipts = [tree.lock(chain, 8, own=own) for own in order]
        assert (doubled, cost) == (tree.doubled_slots(SWA), tree.unlocked(chain, 5, 8, SWA))
        tree.check()
        for receipt in receipts:
            tree.unlock(receipt)
        assert (0, 3, 8) == (tree.doubled_slots(SWA), tree.unlocked(chain, 5, 8, SWA), tree.evictable_slots(SWA))
        tree.check()


def test_only_pages_that_the_holder_published_are_its_own():
    """Its hit ends at page 6: what the lock protects before it was somebody else's."""
    tree, chain = grown()
    tree.boundary(chain, 6)
    tree.lock(chain, 8, own=6)
    other = tree.lock(chain, 8)
    assert 2 == tree.doubled_slots(SWA)
    tree.boundary(chain, 7)
    tree.check()
    tree.unlock(other)
    assert (0, 2) == (tree.doubled_slots(SWA), tree.unlocked(chain, 5, 8, SWA))


def test_nobody_counts_on_a_checkpoint():
    """It was paid for when it was taken."""
    tree, chain = grown()
    for own in (OWN, OTHER):
        tree.lock(chain, 8, own=own)
    assert (0, 0) == (tree.doubled_slots(STATE), tree.unlocked(chain, 7, 8, STATE))


def test_a_transfer_takes_what_it_holds_from_those_who_move_on():
    """A copy to the store is under its own span."""
    tree, chain = grown()
    mine = tree.lock(chain, 8, own=OWN)
    span = tree.hold_span(chain, 5, 8, firsts={SWA: 5})
    assert 3 == tree.doubled_slots(SWA)
    tree.unlock(mine)
    assert (0, 5) == (tree.doubled_slots(SWA), tree.evictable_slots(SWA))
    tree.release_span(span)
    assert 8 == tree.evictable_slots(SWA)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_locks_and_splits_is_counted_like_all_locks_anew(seed):
    """The tree recounts after every change; a copy of it counts on alike."""
    dice, (tree, chain) = random.Random(seed), grown()
    receipts = []
    for _ in range(60):
        act = dice.randrange(4)
        if act == 0 and receipts:
            tree.unlock(receipts.pop(dice.randrange(len(receipts))))
        elif act == 1:
            tree.boundary(chain, dice.randint(1, 8))
        else:
            pages = dice.randint(1, 8)
            receipts.append(tree.lock(chain, pages, own=dice.choice((None, 0, dice.randint(0, pages)))))
        tree.check()
    for receipt in receipts:
        tree.unlock(receipt)
    assert (0, 8) == (tree.doubled_slots(SWA), tree.evictable_slots(SWA))
