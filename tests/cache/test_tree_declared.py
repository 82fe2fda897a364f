"""What each kind of KV declares: staging, splice rule, priority and reservations."""

from __future__ import annotations

import pytest

from stagehold.cache.components.base import Splice
from stagehold.cache.components.full import Full
from stagehold.cache.components.state import Checkpoints
from stagehold.cache.components.swa import SlidingWindow
from stagehold.cache.errors import CacheRefused

WINDOW = 3


@pytest.mark.parametrize(
    ("suffix", "at_root", "in_mid_tree"),
    [(0, 0, 0), (WINDOW - 1, WINDOW - 1, 0), (WINDOW, WINDOW, WINDOW), (WINDOW + 5, WINDOW, WINDOW)],
)
def test_a_window_stages_whole_or_not_at_all(suffix, at_root, in_mid_tree):
    """A full window; at the root a shorter sequence is its own window; a short suffix in mid-tree stages nothing."""
    window = SlidingWindow(WINDOW)
    assert (at_root, in_mid_tree) == (window.staging_demand(0, suffix), window.staging_demand(4, suffix))


@pytest.mark.parametrize("suffix", [0, WINDOW - 1, WINDOW])
@pytest.mark.parametrize("anchor", [0, 4])
def test_a_checkpoint_stages_one_slot(anchor, suffix):
    """A state has one size, whatever it stands for."""
    assert 1 == Checkpoints().staging_demand(anchor, suffix)


@pytest.mark.parametrize("anchor", [0, 4])
def test_full_stages_every_page_of_the_suffix(anchor):
    """It is trimmed later, page by page."""
    assert [0, 2, 3] == [Full().staging_demand(anchor, suffix) for suffix in (0, WINDOW - 1, WINDOW)]


def test_splice_rules_and_priorities_are_declared():
    """FULL goes last and may be trimmed; a window is whole; a checkpoint goes first and is copied on use."""
    parts = (Full(), SlidingWindow(WINDOW), Checkpoints())
    assert [Splice.TRIMMABLE, Splice.WHOLE, Splice.CHECKPOINT] == [part.splice for part in parts]
    assert [2, 1, 0] == [part.priority for part in parts]
    assert [False, False, True] == [part.copies_on_use for part in parts]


@pytest.mark.parametrize(
    ("extend", "new", "chunk", "pages"),
    [(2, 0, 10, 5), (3, 4, 10, 7), (8, 4, 10, 12), (8, 4, 4, 8), (20, 1, 4, 8), (0, 9, 4, 4)],
)
def test_a_window_reserves_by_window_arithmetic(extend, new, chunk, pages):
    """The window of what is published, a chunk beside it or the window that is decoded, and a page."""
    assert pages == SlidingWindow(WINDOW).reservation(extend, new, chunk)
    assert extend + new == Full().reservation(extend, new, chunk)
    assert 1 == Checkpoints().reservation(extend, new, chunk)


def test_only_a_ring_may_fit_exactly():
    """Elsewhere one slot stays free."""
    assert SlidingWindow(WINDOW, ring=True).fits(5, 5)
    assert not any(part.fits(5, 5) for part in (SlidingWindow(WINDOW), Checkpoints(), Full()))
    assert all(part.fits(5, 6) for part in (SlidingWindow(WINDOW), Checkpoints(), Full()))


def test_a_window_of_no_page_is_refused():
    """Nothing would ever be valid or everything would."""
    with pytest.raises(CacheRefused, match="at least one page"):
        SlidingWindow(0)
