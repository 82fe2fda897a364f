"""Orders of eviction behind the tree's seam: what a scan drives out, what comes back, and who knows the future."""

from __future__ import annotations

import copy

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.foreseen import NEVER, Foreseen
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.orders import eviction_order
from stagehold.cache.pools import Pool
from stagehold.cache.recency import LeafLRU
from stagehold.cache.s3fifo import S3Fifo
from stagehold.cache.tree import Tree
from stagehold.specs.outcomes import Eviction
from stagehold.testing.tree_shape import text_tokens

PAGE = 64
ROOM = 20


def chain_of(text):
    return Chain(Namespace("model"), text_tokens(text, PAGE), PAGE)


class Served:
    """A tree of twenty pages that serves texts: uses what it has, evicts for the rest, publishes it."""

    def __init__(self, order):
        self.tree = Tree(PAGE, {FULL: Pool(ROOM, FULL)}, order=order, checked=True)

    def serve(self, text):
        """Pages hit."""
        tree, chain = self.tree, chain_of(text)
        hit = tree.full_match(chain)
        tree.touch(chain, hit)
        receipt = tree.lock(chain, hit)
        short = chain.n_pages - hit - tree.pools[FULL].free_count
        if short > 0:
            tree.evict(short)
        if hit < chain.n_pages:
            tree.insert(chain, hit, chain.n_pages, tree.pools[FULL].alloc(chain.n_pages - hit))
        tree.unlock(receipt)
        tree.check()
        return hit


def other(n):
    """A letter of its own."""
    return chr(200 + n)


def s3fifo():
    return Served(eviction_order(Eviction.S3FIFO, ROOM))


def test_each_name_has_its_order():
    """Closed, and complete."""
    kinds = {Eviction.LRU: LeafLRU, Eviction.S3FIFO: S3Fifo}
    assert set(kinds) == set(Eviction)
    for name, kind in kinds.items():
        assert kind is type(eviction_order(name, ROOM))


def test_a_scan_drives_out_what_was_used_once_and_nothing_else():
    """Forty prompts that never return pass through small; least recent use would have lost the prompt that does."""
    for served, left in ((s3fifo(), 10), (Served(LeafLRU()), 0)):
        served.serve("a" * 10)
        served.serve("a" * 10)
        for n in range(40):
            served.serve(other(n) * 6)
        assert left == served.tree.full_match(chain_of("a" * 10))


def test_what_comes_back_is_remembered():
    """It left small unused; the second time it begins in main, and stays while others pass."""
    served = s3fifo()
    served.serve("a" * 6)
    for n in (100, 101):
        served.serve(other(n) * 10)
    assert 0 == served.tree.full_match(chain_of("a" * 6))
    assert 0 == served.serve("a" * 6)
    for n in range(40):
        served.serve(other(n) * 6)
    assert 6 == served.tree.full_match(chain_of("a" * 6))


def test_the_path_of_what_is_used_is_as_good_as_its_end():
    """The branch nobody came back to goes, and the head that both share stays."""
    served = s3fifo()
    for text in ("aaaab", "aaaac", "aaaab"):
        served.serve(text)
    served.serve("bbbbbbbbbbbbbb")
    served.serve("cccccc")
    assert (5, 4) == (served.tree.full_match(chain_of("aaaab")), served.tree.full_match(chain_of("aaaac")))


def test_the_ghost_has_a_bound():
    """As many keys as main has pages, whatever passes."""
    served = s3fifo()
    for n in range(50):
        served.serve("abc"[n % 3] + "bca"[n // 3 % 3] * 4 + "cab"[n // 9 % 3] * 4)
    order = served.tree.order
    assert 0 < len(order.ghost()) <= order.ghost_keys == ROOM - ROOM // 10


def test_the_order_to_come_is_the_order_that_comes():
    """`coming` changes nothing, and names leaves as they then go."""
    served = s3fifo()
    for text in ("aab", "aac", "bb", "cc", "aab", "bb", "ccc", "abc", "aab"):
        served.serve(text)
    before = served.tree.digest()
    expected = [leaf.keys[-1] for leaf in served.tree.order.coming()]
    assert before == served.tree.digest()
    gone = []
    while (leaf := served.tree.order.victim()) is not None:
        gone.append(leaf.keys[-1])
        served.tree.delete_leaf(leaf)
    assert [key for key in gone if key in expected] == expected


def test_a_copy_goes_its_own_way():
    """Queues, ghost and clock are copied; equal calls lead to equal digests."""
    served = s3fifo()
    for n in range(20):
        served.serve("abc"[n % 3] + "bca"[n // 3 % 3] * 4)
    twin = copy.deepcopy(served.tree)
    assert twin.digest() == served.tree.digest()
    before = served.tree.digest()
    twin.evict(9)
    assert before == served.tree.digest()
    served.tree.evict(9)
    assert twin.digest() == served.tree.digest()
    twin.check()


def test_the_digest_knows_the_ghost():
    """Two trees of equal pages that would answer differently later are told apart."""
    one, two = s3fifo(), s3fifo()
    one.serve("b")
    one.tree.evict(1)
    two.serve("c")
    two.tree.evict(1)
    assert one.tree.digest() != two.tree.digest()


@pytest.mark.parametrize("letter", "ab")
def test_who_knows_the_future_keeps_what_comes_next(letter):
    """The page whose next use is farthest goes first, one that is never used again before all."""
    uses = {chain_of("a").page_key(0): 1, chain_of("b").page_key(0): 1}
    uses[chain_of(letter).page_key(0)] = 2
    served = Served(Foreseen(lambda key: uses.get(key, NEVER)))
    for text in "abc":
        served.serve(text)
    served.tree.evict(2)
    assert [served.tree.full_match(chain_of(text)) for text in "abc"] == [letter == "b", letter == "a", 0]
    twin = copy.deepcopy(served.tree)
    assert [key for leaf in twin.order.coming() for key in leaf.keys] == [
        chain_of("ba"["ab".index(letter)]).page_key(0)
    ]
    assert twin.evict(5) == served.tree.evict(5) == 1
    served.tree.check()
