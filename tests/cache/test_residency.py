"""The book of residency: pages move along the declared rows, of tree and host tier alike, or an error names one."""

from __future__ import annotations

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.errors import InvariantBroken
from stagehold.cache.host import HostTier
from stagehold.cache.pools import StagingPool
from stagehold.cache.residency import IN_HOST, ON_DEVICE, Residency, Shelf
from stagehold.specs.residency import ResidencyState as S

SWA = "swa"
PAGE = b"page"


def told(book: Residency) -> tuple[S | None, S | None]:
    """Where a page is, and its window."""
    return book.of(PAGE), book.of(PAGE, SWA)


def computed() -> Residency:
    """A page and its window on the device."""
    book = Residency()
    book.entered([PAGE], FULL, bare=False)
    book.entered([PAGE], SWA, bare=False)
    return book


def both() -> Residency:
    """The same, and copies of both in host memory."""
    book = computed()
    book.kept(PAGE, FULL)
    book.kept(PAGE, SWA)
    return book


def test_a_page_goes_down_and_comes_back():
    """Copied, evicted, loaded, and given up by host memory while the device has it."""
    book = both()
    book.left([PAGE], [SWA], evicted=True)
    assert (S.STAGING, S.STAGING) == told(book)
    book.loading = True
    book.entered([PAGE], FULL, bare=False)
    book.entered([PAGE], SWA, bare=False)
    assert (S.BOTH, S.BOTH) == told(book)
    book.dropped(PAGE, FULL, [SWA])
    assert (S.DEVICE, S.BOTH) == told(book)


def test_a_page_that_is_computed_again_is_not_loaded():
    """Two rows with one target: who brought it back is the difference."""
    rows = []
    for loading in (True, False):
        book = both()
        book.left([PAGE], [SWA], evicted=True)
        step, book.loading = book.step, loading
        book.step = lambda *move, step=step: (rows.append(move[2]), step(*move))  # type: ignore[method-assign]
        book.entered([PAGE], FULL, bare=False)
    assert ["load", "recomputed"] == rows


def test_a_window_that_is_taken_from_a_live_page_leaves_a_tombstone():
    """Or its copy."""
    book = computed()
    book.emptied([PAGE], SWA)
    assert (S.DEVICE, S.TOMBSTONE) == told(book)
    book = both()
    book.emptied([PAGE], SWA)
    assert (S.BOTH, S.STAGING) == told(book)


def test_a_tombstone_gets_a_copy_from_below():
    """A write that had copied the window before it went."""
    book = computed()
    book.emptied([PAGE], SWA)
    book.kept(PAGE, SWA)
    assert (S.DEVICE, S.STAGING) == told(book)
    book.dropped(PAGE, SWA)
    assert (S.DEVICE, S.TOMBSTONE) == told(book)


def test_a_page_demoted_without_its_window_keeps_the_tombstone():
    """FULL lives on in host memory; the tombstone goes with its last copy."""
    book = computed()
    book.kept(PAGE, FULL)
    book.left([PAGE], [SWA], evicted=True)
    assert (S.STAGING, S.TOMBSTONE) == told(book)
    book.dropped(PAGE, FULL, [SWA])
    assert (None, None) == told(book)


def test_a_window_may_outlive_its_page_in_host_memory():
    """Each tier gives up its own pages; the window's last copy is deleted then, since nothing of the page is left."""
    book = both()
    book.left([PAGE], [SWA], evicted=True)
    book.dropped(PAGE, FULL, [SWA])
    assert (None, S.STAGING) == told(book)
    book.dropped(PAGE, SWA)
    assert ({}, 0) == (book.places, sum(book.counts.values()))


def test_a_page_that_goes_without_a_copy_takes_its_window_along():
    """Evicted or flushed."""
    for evicted in (True, False):
        book = computed()
        book.left([PAGE], [SWA], evicted=evicted)
        assert (None, None) == told(book)


@pytest.mark.parametrize(
    ("move", "why"),
    [
        (lambda book: book.entered([PAGE], FULL, bare=False), "no row for birth COMPUTED in both"),
        (lambda book: book.entered([PAGE], SWA, bare=True), "no row for birth BARE in both"),
        (lambda book: book.kept(PAGE, FULL), "no row for backed_up in both"),
        (lambda book: book.emptied([b"else"], SWA), "no row for evict TOMBSTONE in gone"),
        (lambda book: book.left([b"else"], [SWA], evicted=True), "no row for evict DELETE in gone"),
        (lambda book: book.dropped(b"else", FULL), "no row for evict_host DELETE in gone"),
        (lambda book: book.step(PAGE, FULL, "load"), "no row for load in both"),
    ],
    ids=["enters twice", "enters bare twice", "kept twice", "emptied", "left", "dropped", "loaded"],
)
def test_a_move_that_is_not_declared_is_refused(move, why):
    """With the state in which it came, and the page."""
    with pytest.raises(InvariantBroken, match=why):
        move(both())


def test_a_count_that_differs_names_a_page():
    """Of those that are in one and not in the other."""
    book = both()
    book.check("on the device", FULL, {PAGE}, ON_DEVICE)
    with pytest.raises(InvariantBroken, match=rf"swa in host memory: the book says 1 .* says 2; .*{b'else'.hex()}"):
        book.check("in host memory", SWA, {PAGE, b"else"}, IN_HOST)


def test_a_host_tier_tells_what_it_keeps_and_gives_up():
    """Under page keys without its tag; a page that it has already is no news."""
    book, staging = Residency(), StagingPool(2, "staging")
    tier = HostTier(staging, tier=True)
    tier.watch = Shelf(book, SWA, b"swa", ())
    tier.keep([b"a" + b"swa", b"b" + b"swa"], staging.alloc(2))
    tier.borrow([b"a" + b"swa"])
    tier.keep([b"a" + b"swa"], [tier.pages()[0]])
    assert {(b"a", SWA): S.STAGING, (b"b", SWA): S.STAGING} == book.places
    tier.reclaim(1)
    assert {(b"a", SWA): S.STAGING} == book.places
    tier.flush()
    assert {} == book.places
