"""The live tree with FULL alone: what is where, who protects it, what goes first."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.errors import (
    CacheRefused,
    ClaimRefused,
    FlushRefused,
    InvariantBroken,
    ReceiptRefused,
    SpanRefused,
)
from stagehold.cache.events import Change, Reason
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.node import Node
from stagehold.cache.pools import Pool
from stagehold.cache.recency import LeafLRU
from stagehold.cache.tree import Tree
from stagehold.specs.outcomes import Birth, Eviction
from stagehold.testing.tree_shape import text_tokens

PAGE = 16

pytestmark = pytest.mark.usefixtures("eviction")


def in_order(*orders):
    """What is about some orders of eviction alone."""

    def mark(test):
        test.orders = orders
        return test

    return mark


def tree_of(room=200, page_size=PAGE, **options):
    return Tree(page_size, {FULL: Pool(room, FULL)}, **options)


def chain_of(text, page_size=PAGE, space="model"):
    return Chain(Namespace(space), text_tokens(text, page_size), page_size)


def put(tree, text):
    """Insert a text whole; duplicates go back."""
    chain = chain_of(text, tree.page_size)
    start = tree.full_match(chain)
    if start < chain.n_pages:
        slots = tree.pools[FULL].alloc(chain.n_pages - start)
        tree.insert(chain, start, chain.n_pages, slots)
    return chain


class Counted(dict):
    """A dict that counts how often it is asked."""

    asked = 0

    def get(self, key, default=None):
        self.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128])
def test_a_match_ends_at_the_first_page_that_differs(page_size):
    """Pages that differ in their last token alone are told apart, at any place in a block."""
    tree = tree_of(page_size=page_size)
    put(tree, "a" * 90)
    for live in (0, 1, 3, 63, 64, 65, 89):
        assert live == tree.full_match(chain_of("a" * live + "b" * 9, page_size))


def test_a_complete_hit_costs_one_look_up_at_any_length():
    """The last key answers for all before it."""
    tree = tree_of(3_000, 64)
    chain = put(tree, "a" * 2_048)
    tree.index.pages = Counted(tree.index.pages)
    assert 2_048 == tree.full_match(chain)
    assert 1 == tree.index.pages.asked


def test_a_partial_match_is_a_search_and_not_a_walk():
    """Without a hint the look-ups grow with the logarithm; with a right hint there are three."""
    tree = tree_of(3_000, 64)
    put(tree, "a" * 1_000)
    chain = chain_of("a" * 2_048, 64)
    tree.index.pages = Counted(tree.index.pages)
    assert 1_000 == tree.full_match(chain)
    assert tree.index.pages.asked <= 12
    tree.index.pages.asked = 0
    assert 1_000 == tree.full_match(chain)
    assert 3 == tree.index.pages.asked


def test_namespaces_never_meet():
    """The same tokens under another salt are another prefix."""
    tree = tree_of()
    put(tree, "abc")
    assert 0 == tree.full_match(chain_of("abc", space="other"))


def test_an_emptied_namespace_leaves_nothing_behind():
    """Its root goes with its last page."""
    tree = tree_of()
    put(tree, "abc")
    assert 3 == tree.evict(9)
    assert not tree.index.roots
    assert not tree.index.pages


def test_an_insert_names_the_pages_that_were_live_already():
    """Their slots come back to the caller, and the tree keeps its own."""
    tree = tree_of()
    chain = put(tree, "aab")
    pool = tree.pools[FULL]
    result = tree.insert(chain_of("aaccc"), 1, 5, mine := pool.alloc(4))
    assert (2, {FULL: mine[:1]}) == result
    assert [0, 1, *mine[1:]] == tree.slots(chain_of("aaccc"), 0, 5)
    assert [0, 1, 2] == tree.slots(chain, 0, 3)


def test_an_insert_that_leaves_a_gap_is_refused():
    """Pages are published directly behind the live prefix, or not."""
    tree = tree_of()
    put(tree, "a")
    with pytest.raises(SpanRefused, match="do not join"):
        tree.insert(chain_of("aaa"), 2, 3, tree.pools[FULL].alloc(1))


@pytest.mark.parametrize(("start", "end", "n"), [(0, 2, 1), (0, 0, 0), (-1, 1, 2), (0, 9, 9), (2, 1, 1)])
def test_an_insert_that_cannot_be_meant_is_refused(start, end, n):
    """A span outside the chain, an empty one, and slots that do not fit change nothing."""
    tree = tree_of()
    before = tree.digest()
    with pytest.raises(SpanRefused):
        tree.insert(chain_of("aaa"), start, end, list(range(n)))
    assert before == tree.digest()


def test_a_chain_of_another_page_size_is_refused():
    """Its keys would name other pages."""
    with pytest.raises(SpanRefused, match="page size"):
        tree_of().full_match(chain_of("aaa", 32))


@in_order(Eviction.LRU)
def test_leaves_go_before_their_parents_and_old_ones_first():
    """A page is as recent as the latest use of anything behind it."""
    tree = tree_of()
    for text in ("aab", "aac", "b"):
        put(tree, text)
    tree.touch(chain_of("aab"), 3)
    assert 1 == tree.evict(1)
    assert 2 == tree.full_match(chain_of("aac"))
    assert 1 == tree.evict(1)
    assert 0 == tree.full_match(chain_of("b"))
    assert 3 == tree.full_match(chain_of("aab"))


def test_one_wanted_page_shortens_a_long_leaf():
    """Eviction never throws away more than it must."""
    tree = tree_of()
    chain = put(tree, "a" * 100)
    assert 1 == tree.evict(1)
    assert 99 == tree.full_match(chain)


@in_order(Eviction.LRU)
def test_a_use_in_the_middle_of_a_run_outlives_its_end():
    """A touching match makes its end a boundary, so that every page of a run has the same last use."""
    tree = tree_of()
    put(tree, "aaaa")
    put(tree, "b")
    assert 2 == tree.match(chain_of("aac"))
    tree.evict(3)
    assert (2, 0) == (tree.full_match(chain_of("aaaa")), tree.full_match(chain_of("b")))


def test_read_only_questions_change_nothing():
    """Matches, costs, slots and what is missing leave the digest."""
    tree = tree_of()
    chain = put(tree, "aaaabb")
    put(tree, "aaac")
    before = tree.digest()
    tree.full_match(chain, 2)
    tree.joint_match(chain_of("aab"))
    tree.slots(chain, 1, 3)
    tree.missing(chain, 0, 6)
    tree.protect_cost(chain, 3)
    tree.pin_cost(chain, 3)
    tree.stats()
    assert before == tree.digest()


def test_a_lock_protects_its_prefix_and_no_more():
    """What lies behind the boundary may go."""
    tree = tree_of()
    chain = put(tree, "aaaa")
    receipt = tree.lock(chain, 2)
    assert (2, 2) == (tree.evictable, tree.evict(9))
    assert 2 == tree.full_match(chain)
    tree.unlock(receipt)
    assert 2 == tree.evict(9)


def test_two_pins_over_one_path_pay_once():
    """The charge is a set of pages."""
    tree = tree_of()
    one, two = put(tree, "aaab"), put(tree, "aaac")
    assert (4, 4) == (tree.pin_cost(one, 4), tree.pin_cost(two, 4))
    first = tree.pin(one, 4)
    assert (4, 1) == (tree.pinned, tree.pin_cost(two, 4))
    second = tree.pin(two, 4)
    assert 5 == tree.pinned
    tree.unpin(first)
    assert 4 == tree.pinned
    tree.unpin(second)
    assert (0, 5) == (tree.pinned, tree.evictable)


def test_a_lock_is_not_charged_as_a_pin():
    """Locks are for requests, which are budgeted elsewhere."""
    tree = tree_of()
    tree.lock(put(tree, "aaa"), 3)
    assert (0, 0) == (tree.pinned, tree.evictable)


def test_the_cost_of_protection_counts_what_is_free_now():
    """In the middle of a run only its upper part would be held; held pages cost nothing again."""
    tree = tree_of()
    chain = put(tree, "aaaaaa")
    assert 4 == tree.protect_cost(chain, 4)
    tree.lock(chain, 3)
    assert (0, 3) == (tree.protect_cost(chain, 2), tree.protect_cost(chain, 6))


@pytest.mark.parametrize("take", ["lock", "pin"])
def test_a_receipt_is_given_back_once(take):
    """A second time it is refused by name and changes nothing."""
    tree = tree_of()
    chain = put(tree, "aaa")
    receipt = getattr(tree, take)(chain, 3)
    assert 3 == receipt.pages
    give = tree.unlock if take == "lock" else tree.unpin
    give(receipt)
    before = tree.digest()
    with pytest.raises(ReceiptRefused, match="not out"):
        give(receipt)
    assert before == tree.digest()


def test_a_receipt_is_given_back_by_its_own_call():
    """A pin is no lock."""
    tree = tree_of()
    receipt = tree.pin(put(tree, "aaa"), 3)
    with pytest.raises(ReceiptRefused, match="a PIN, not a LOCK"):
        tree.unlock(receipt)


def test_the_receipt_of_no_page_is_empty():
    """It costs nothing and may be given back at any time."""
    tree = tree_of()
    chain = chain_of("aaa")
    for take, give in ((tree.lock, tree.unlock), (tree.pin, tree.unpin)):
        receipt = take(chain, 0)
        give(receipt)
        give(receipt)
    tree.release_span(tree.hold_span(chain, 0, 0))
    assert 0 == tree.stats().holds


def test_a_receipt_survives_a_split_under_it():
    """It names a boundary, and the boundary stays."""
    tree = tree_of()
    chain = put(tree, "aaaaaa")
    receipt = tree.lock(chain, 6)
    tree.touch(chain, 2)
    tree.touch(chain, 4)
    assert (3, 0) == (tree.nodes, tree.evictable)
    tree.unlock(receipt)
    assert 6 == tree.evictable
    tree.check()


def test_what_is_not_live_cannot_be_held():
    """The refusal says how much is live."""
    tree = tree_of()
    put(tree, "aa")
    with pytest.raises(SpanRefused, match="2 of them live"):
        tree.lock(chain_of("aaa"), 3)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree, chain: tree.full_match(chain, -1),
        lambda tree, chain: tree.joint_match(chain, -1),
        lambda tree, chain: tree.lock(chain, -1),
        lambda tree, chain: tree.touch(chain, -2),
        lambda tree, chain: tree.pin_cost(chain, -1),
        lambda tree, chain: tree.slots(chain, 2, 1),
        lambda tree, chain: tree.hold_span(chain, 2, 1),
        lambda tree, chain: tree.hold_span(chain, -1, 1),
    ],
)
def test_a_span_that_runs_backwards_is_refused(ask):
    """Numbers below zero and ends before starts change nothing."""
    tree = tree_of()
    chain = put(tree, "aaa")
    before = tree.digest()
    with pytest.raises(SpanRefused):
        ask(tree, chain)
    assert before == tree.digest()


def test_a_load_never_claims_what_another_load_is_bringing():
    """It joins that load or recomputes: the refusal names it; once it has ended the span is free."""
    tree = tree_of()
    chain = put(tree, "aaaaaa")
    first = tree.hold_span(chain, 2, 4, load=True)
    tree.touch(chain, 3)
    assert (first.serial,) == tree.loads_over(chain, 3, 6)
    with pytest.raises(ClaimRefused, match=str(first.serial)):
        tree.hold_span(chain, 3, 6, load=True)
    tree.hold_span(chain, 4, 6, load=True)
    tree.release_span(first)
    assert () == tree.loads_over(chain, 0, 4)


def test_a_flush_is_refused_while_anything_is_held():
    """Then it frees every page."""
    tree = tree_of()
    chain = put(tree, "aaab")
    put(tree, "aac")
    receipt = tree.pin(chain, 2)
    with pytest.raises(FlushRefused, match=f"receipt {receipt.serial}"):
        tree.flush()
    tree.unpin(receipt)
    assert 5 == tree.flush()
    assert (0, 200) == (tree.total, tree.pools[FULL].free_count)


def test_a_removal_stops_at_what_others_need():
    """Only the tail that nothing goes on from is taken."""
    tree = tree_of()
    chain = put(tree, "aaaab")
    put(tree, "aac")
    assert 3 == tree.remove(chain, 1)
    assert 2 == tree.full_match(chain)
    assert 1 == tree.remove(chain_of("aac"), 2)
    assert 1 == tree.remove(chain, 1)


def test_an_eviction_that_could_free_and_does_not_is_an_invariant_error(monkeypatch):
    """A leaf that was never offered shows as a pass that frees nothing; the message names who holds what."""
    tree = tree_of()
    chain = put(tree, "aab")
    held = tree.lock(put(tree, "c"), 1)
    monkeypatch.setattr(type(tree.order), "victim", lambda self: None)
    with pytest.raises(InvariantBroken, match=f"3 of them evictable, held by .*receipt {held.serial} at 1"):
        tree.evict(1)
    assert 3 == tree.full_match(chain)


def test_an_eviction_with_nothing_to_free_frees_nothing():
    """Held pages are no error."""
    tree = tree_of()
    tree.lock(put(tree, "aab"), 3)
    assert 0 == tree.evict(1)


def test_changes_are_told_in_order_with_tier_and_reason():
    """A router hears what came and what went; draining empties the list."""
    tree = tree_of(events=True)
    chain = put(tree, "aaab")
    tree.evict(1)
    tree.flush()
    told = [(e.change, e.tier.value, e.reason, e.component, e.start, e.end) for e in tree.drain_events()]
    assert [
        (Change.STORED, "device", Reason.INSERTED, FULL, 0, 4),
        (Change.REMOVED, "device", Reason.EVICTED, FULL, 3, 4),
        (Change.REMOVED, "device", Reason.FLUSHED, FULL, 0, 3),
    ] == told
    assert [] == tree.drain_events()
    assert chain.n_pages == 4


def test_a_tree_that_nobody_listens_to_keeps_no_events():
    """The list would grow for ever."""
    tree = tree_of()
    put(tree, "aaab")
    assert [] == tree.drain_events()


def test_a_deep_tree_is_copied_without_recursion():
    """A path of five thousand runs has a copy with the same digest, which goes its own way."""
    tree = tree_of(6_000, 64, checked=True)
    chain = chain_of("a" * 5_000, 64)
    slots = tree.pools[FULL].alloc(5_000)
    for page in range(5_000):
        tree.insert(chain, page, page + 1, slots[page : page + 1])
    receipt = tree.lock(chain, 4_000)
    twin = copy.deepcopy(tree)
    assert twin.digest() == tree.digest()
    assert 1_000 == tree.evict(5_000)
    assert 5_000 == twin.full_match(chain)
    twin.unlock(receipt)
    assert 5_000 == twin.evict(5_000)
    assert 6_000 == twin.pools[FULL].free_count
    twin.check()
    tree.check()


def test_a_removed_node_needs_no_collector():
    """It is in no reference cycle."""
    tree = tree_of(2_000)
    for letter in "abc":
        put(tree, letter * 30 + "ab" * 20)
        tree.touch(chain_of(letter * 30), 17)
    before = sum(type(each) is Node for each in gc.get_objects())
    gc.disable()
    try:
        tree.evict(2_000)
        after = sum(type(each) is Node for each in gc.get_objects())
    finally:
        gc.enable()
    assert 7 == before - after  # two runs for each text, and the root


def test_the_self_check_names_what_differs():
    """A total that drifted is found, with both figures."""
    tree = tree_of()
    put(tree, "aab")
    tree.holds.evictable += 1
    with pytest.raises(InvariantBroken, match="evictable: the books say 4, a count says 3"):
        tree.check()


def test_the_self_check_finds_a_page_that_no_index_names():
    """Closure is counted, not assumed."""
    tree = tree_of(page_size=64)
    chain = put(tree, "aab")
    del tree.index.pages[chain.page_key(1)]
    with pytest.raises(InvariantBroken, match="index"):
        tree.check()


def test_a_move_without_a_row_is_refused_in_checked_mode():
    """Residency is declared: what is in the device pool cannot be born again, or attached."""
    tree = tree_of(checked=True)
    chain = put(tree, "aab")
    book, page = tree.moves.book, chain.page_key(1)
    with pytest.raises(InvariantBroken, match="no row for attach in device"):
        book.step(page, FULL, "attach")
    with pytest.raises(InvariantBroken, match="no row for birth COMPUTED in device"):
        book.entered([page], FULL, bare=False)
    with pytest.raises(InvariantBroken, match="no row for birth COMPUTED in device"):
        book.step(page, FULL, "birth", Birth.COMPUTED)


def test_a_component_without_a_pool_is_refused():
    """Names must pair."""
    with pytest.raises(CacheRefused, match="need a pool each"):
        Tree(16, {"other": Pool(3, "other")})


def test_tokens_beyond_the_last_whole_page_are_no_page():
    """They wait until their page is whole."""
    tree = tree_of()
    put(tree, "aa")
    chain = Chain(Namespace("model"), np.array([*text_tokens("aa", PAGE), 7, 7]), PAGE)
    assert (2, 2) == (chain.n_pages, tree.full_match(chain))


class FirstInFirstOut(LeafLRU):
    """Another order behind the same seam: a second use renews nothing."""

    def used(self, node):
        if not node.stamp:
            super().used(node)


def test_another_order_fits_the_seam():
    """The tree asks for a victim and tells of uses; what it makes of them is the order's."""
    orders = {LeafLRU: "b", FirstInFirstOut: "a"}
    for order, first in orders.items():
        tree = tree_of(order=order())
        for text in "ab":
            put(tree, text)
        tree.touch(chain_of("a"), 1)
        tree.evict(1)
        assert 0 == tree.full_match(chain_of(first))
