"""What a running request has of a window or of a checkpoint: its page table, and what it may still take."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagehold.cache.components.shares import NOWHERE, StateShare, WindowShare
from stagehold.cache.components.swa import SlidingWindow

WINDOW = 3


def shared(hit: int = 5, shown=(10, 11, 12), promise: int = 8) -> WindowShare:
    """A request behind 5 pages that is promised 3 + 4 + 1 slots."""
    share = WindowShare(WINDOW, hit, shown)
    share.promise(promise)
    return share


# -- windows ----------------------------------------------------------------------------------------------------


def test_the_table_names_what_the_tree_shows_and_nothing_before_it():
    """Pages 2 to 4 of 5."""
    share = shared()
    assert ([NOWHERE, NOWHERE, 10, 11, 12], []) == (share.slots, share.own())
    assert (0, 2, []) == (share.wants(5), share.wants(7), share.opening())


def test_it_grows_by_what_it_wants():
    """And owns that."""
    share = shared()
    share.grow([20, 21])
    assert ([20, 21], 0, 1) == (share.own(), share.wants(7), share.wants(8))


def test_what_fell_out_of_the_window_is_outlived_but_only_what_is_its_own():
    """With 9 whole pages computed pages 6 to 8 are looked at; what the tree shows is the tree's to free."""
    share = shared()
    share.grow([20, 21, 22, 23])
    assert ([], []) == (share.outlived(5), share.outlived(8))
    assert [20] == share.outlived(9)
    assert [20, 21, 22, 23] == share.outlived(100)


def test_what_was_dropped_is_gone_from_the_table():
    """It is neither outlived nor owned again."""
    share = shared()
    share.grow([20, 21, 22, 23])
    share.drop([20])
    assert ([NOWHERE, NOWHERE, 10, 11, 12, NOWHERE, 21, 22, 23], [21, 22, 23]) == (share.slots, share.own())
    assert [21] == share.outlived(10)


def test_a_slot_number_that_the_tree_shows_again_is_not_dropped_with_it():
    """Only the request's own part of the table is touched: the tree may show what was freed and taken anew."""
    share = shared(shown=(20, 11, 12))
    share.grow([21, 22, 23, 24])
    share.drop([20, 21])
    assert [NOWHERE, NOWHERE, 20, 11, 12, NOWHERE, 22, 23, 24] == share.slots


def test_due_is_the_promise_less_what_it_has_and_protects():
    """8 were promised. What it published and its lock still protects counts, up to a window."""
    share = shared()
    assert 8 == share.due(5)
    share.grow([20, 21, 22, 23])
    assert (4, 2, 1, 1) == (share.due(5), share.due(7), share.due(8), share.due(12))
    share.grow(list(range(30, 40)))
    assert 0 == share.due(5)


def test_what_is_behind_the_window_of_the_next_token_is_not_protected_any_more():
    """Pages 5 to 7 were published; with 9 and 10 computed, two and one of them are still looked at."""
    share = shared()
    share.grow([20, 21, 22, 23, 24])
    share.give(5, 8, [])
    share.shown(5, [20, 21, 22])
    assert 8 - 2 - 3 == share.due(8)
    share.passed(9)
    assert (8 - 2 - 2, [NOWHERE] * 6 + [21, 22, 23, 24]) == (share.due(8), share.slots)
    share.passed(10)
    assert (8 - 2 - 1, [NOWHERE] * 7 + [22, 23, 24]) == (share.due(8), share.slots)


def test_it_gives_the_last_pages_without_a_gap():
    """What was dropped before them is born a tombstone."""
    share = shared()
    share.grow([20, 21, 22, 23])
    share.drop([21])
    assert 0 == share.fresh(whole=True)
    assert ([22, 23], []) == share.give(5, 9, [])
    assert ([], 9) == (share.own(), len(share.slots))


def test_it_gives_no_page_of_another_publication():
    """Not even when what lies before is there."""
    share = shared()
    share.grow([20, 21, 22, 23])
    assert ([20, 21], []) == share.give(5, 7, [])
    assert [22, 23] == share.own()
    assert ([22, 23], []) == share.give(7, 9, [])


def test_after_a_publication_the_table_names_what_the_tree_shows():
    """A sibling's slots where it was first; nothing out of reach."""
    share = shared()
    share.grow([20, 21, 22, 23])
    share.give(5, 8, [])
    share.shown(5, [40, 41, 42])
    assert [NOWHERE] * 5 + [40, 41, 42, 23] == share.slots
    assert [23] == share.own()


class Pools:
    """A request that computes and publishes at random, by the rules that `Running` keeps."""

    def __init__(self, window: int, hit: int, chunk: int, prompt: int, new: int) -> None:
        self.part = SlidingWindow(window)
        self.share = self.part.share(hit, list(range(min(hit, window))))
        self.promise = self.part.reservation(max(0, prompt - hit), new, chunk)
        self.share.promise(self.promise)
        self.window, self.next = window, 1000
        self.hit = self.published = self.passed = hit

    def room_for(self, tokens: int, more: int, page: int) -> None:
        """Outlived slots go first, then it grows within what is due."""
        share = self.share
        share.passed(tokens // page)
        self.passed = tokens // page
        share.drop(share.outlived(tokens // page))
        wants = share.wants(-(-(tokens + more) // page))
        assert wants <= share.due(self.published), "it wants more than is due"
        share.grow(range(self.next, self.next + wants))
        self.next += wants
        self.check()

    def publish(self, pages: int) -> None:
        if pages > self.published:
            given = self.share.give(self.published, pages, [])
            self.published = pages
            self.share.shown(pages - len(given.slots), given.slots)
            self.check()

    def check(self) -> None:
        first = max(self.hit, max(self.published, self.passed) - self.window)
        protected = max(0, self.published - first)
        taken = len(self.share.own()) + protected
        assert taken <= self.promise
        assert taken + self.share.due(self.published) == self.promise


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    page=st.sampled_from((1, 4, 16)),
    window=st.integers(1, 6),
    hit=st.integers(0, 8),
    chunk=st.integers(1, 6),
)
def test_own_and_protected_never_exceed_the_promise(data, page, window, hit, chunk):
    """In chunks of any size up to the declared one, published or not, and then token by token."""
    prompt = hit * page + data.draw(st.integers(1, 12 * page), label="prompt tokens")
    new = data.draw(st.integers(1, 8 * page), label="new tokens")
    all_pages, prompt_pages = -(-(prompt + new) // page), -(-prompt // page)
    one = Pools(window, hit, chunk, prompt_pages, all_pages - prompt_pages)
    tokens = hit * page
    while tokens < prompt:
        more = data.draw(st.integers(1, min(chunk * page, prompt - tokens)), label="chunk")
        one.room_for(tokens, more, page)
        tokens += more
        if data.draw(st.booleans(), label="published"):
            one.publish(data.draw(st.integers(0, tokens), label="upto") // page)
    for _ in range(new):
        one.room_for(tokens, 1, page)
        tokens += 1


# -- checkpoints ------------------------------------------------------------------------------------------------


def test_a_state_is_copied_from_the_checkpoint_once():
    """Before anything is computed; the checkpoint serves the next request, too."""
    share = StateShare(4, [7])
    share.promise(1)
    assert (1, 1) == (share.wants(4), share.due(4))
    share.grow([3])
    assert [(7, 3)] == share.opening()
    assert ([], 0, 0, [3]) == (share.opening(), share.wants(40), share.due(4), share.own())


def test_a_state_without_a_hit_begins_empty():
    """Nothing is copied."""
    share = StateShare(0, [])
    share.grow([3])
    assert ([], [3]) == (share.opening(), share.slots)


def test_a_publication_takes_a_copy_where_the_state_stands_at_its_end():
    """The request goes on computing in its own slot; there is no checkpoint in the middle of what was computed."""
    share = StateShare(4, [7])
    share.grow([3])
    assert (1, 0) == (share.fresh(whole=True), share.fresh(whole=False))
    assert ([9], [(3, 9)]) == share.give(4, 6, [9])
    assert ([], []) == share.give(6, 8, [])
    assert [3] == share.own()


@pytest.mark.parametrize(("hit", "shown", "checkpoints"), [(0, [], 1), (4, [7], 1), (4, [], 0)])
def test_a_state_that_began_in_the_middle_is_no_checkpoint(hit, shown, checkpoints):
    """Only one that began at the root, or with the checkpoint of its hit, is the state of its prefix."""
    share = StateShare(hit, shown)
    share.grow([3])

    assert checkpoints == share.fresh(whole=True)
    assert 0 == share.fresh(whole=False)


def test_nothing_of_a_state_is_outlived():
    """It is one slot, read to the end."""
    share = StateShare(4, [7])
    share.grow([3])
    share.drop(share.outlived(100))
    share.shown(0, [])
    assert ([3], 0) == (share.slots, share.due(100))


@pytest.mark.parametrize("shown", [(1, 2), (1,)])
def test_a_request_without_a_hit_has_no_checkpoint(shown):
    """One slot at the hit, none at the root."""
    with pytest.raises(AssertionError):
        StateShare(0, shown)
