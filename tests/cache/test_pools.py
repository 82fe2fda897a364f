"""Slots and staging pages: handed out in a fixed order, taken back once, each in exactly one place."""

from __future__ import annotations

import copy

import pytest

from stagehold.cache.errors import CacheRefused, InvariantBroken, SlotRefused
from stagehold.cache.pools import Pool, StagingPool, alloc_together

MANY = 200  # enough for the way that handles slots in bulk


@pytest.mark.parametrize("n", [3, MANY])
def test_slots_come_in_a_fixed_order(n):
    """Slot 0 first; what came back last goes out first."""
    pool = Pool(n + 2, "full")
    assert list(range(n)) == pool.alloc(n)
    pool.free(list(range(n)))
    assert list(range(n)) == pool.alloc(n)


def test_an_allocation_gives_all_or_nothing():
    """Short pools hand out no slot."""
    pool = Pool(4, "full")
    assert pool.alloc(5) is None
    assert 4 == pool.free_count
    assert [] == pool.alloc(0)


def test_several_pools_allocate_together_or_not_at_all():
    """A short second pool leaves the first untouched."""
    one, two = Pool(4, "full"), Pool(1, "swa")
    assert alloc_together([(one, 2), (two, 2)]) is None
    assert 4 == one.free_count
    assert [[0, 1], [0]] == alloc_together([(one, 2), (two, 1)])


def test_a_pool_named_twice_is_refused():
    """Two shares of one pool would be counted against the same free slots."""
    pool = Pool(3, "full")
    with pytest.raises(CacheRefused, match="twice"):
        alloc_together([(pool, 2), (pool, 2)])


@pytest.mark.parametrize("n", [4, MANY])
@pytest.mark.parametrize("wrong", ["free", "twice", "outside", "negative"])
def test_a_wrong_free_is_refused_whole(n, wrong):
    """A double free, a slot named twice and a slot out of range free nothing."""
    pool = Pool(n + 8, "full")
    slots = pool.alloc(n + 4)
    pool.free(slots[n:])
    bad = {"free": slots[n], "twice": slots[0], "outside": n + 8, "negative": -1}[wrong]
    before = [pool.generation(slot) for slot in range(pool.size)]
    with pytest.raises(SlotRefused, match=f"slot {bad}"):
        pool.free([*slots[:n], bad])
    assert before == [pool.generation(slot) for slot in range(pool.size)]
    assert 8 == pool.free_count
    pool.free(slots[:n])
    assert pool.size == pool.free_count


def test_a_handle_of_an_earlier_generation_is_refused():
    """The slot may be out again, but it is another's."""
    pool = Pool(2, "full")
    (slot,) = pool.alloc(1)
    handle = pool.handle(slot)
    assert slot == pool.resolve(handle)
    pool.free([slot])
    with pytest.raises(SlotRefused, match="stale"):
        pool.resolve(handle)
    assert [slot] == pool.alloc(1)
    with pytest.raises(SlotRefused, match="stale"):
        pool.resolve(handle)


def test_a_handle_of_another_pool_is_refused():
    """Handles name their pool."""
    one, two = Pool(2, "full"), Pool(2, "swa")
    one.alloc(1)
    two.alloc(1)
    with pytest.raises(SlotRefused, match="not a handle of this pool"):
        two.resolve(one.handle(0))


def test_a_free_slot_has_no_handle():
    """There is nobody to hand it to."""
    with pytest.raises(SlotRefused, match="not out"):
        Pool(2, "full").handle(0)


def test_the_partition_holds_for_every_slot():
    """Free, in the tree or with a request: each slot in one of them."""
    pool = Pool(5, "full")
    slots = pool.alloc(3)
    pool.check({"tree": slots[:2], "request": slots[2:]})


@pytest.mark.parametrize(
    ("owners", "says"),
    [
        ({"tree": [0, 1], "request": [1, 2]}, "slot 1 is in 'tree' and in 'request'"),
        ({"tree": [0, 1]}, "slot 2 is in no class"),
        ({"tree": [0, 1, 2, 3]}, "slot 3 is in 'free' and in 'tree'"),
    ],
)
def test_a_broken_partition_names_the_slot(owners, says):
    """A slot in two classes, in none, or owned while free."""
    pool = Pool(5, "full")
    pool.alloc(3)
    with pytest.raises(InvariantBroken, match=says):
        pool.check(owners)


def test_a_copied_pool_goes_its_own_way():
    """Allocating from a copy leaves the original."""
    pool = Pool(4, "full")
    twin = copy.deepcopy(pool)
    assert [0, 1] == twin.alloc(2)
    assert [0] == pool.alloc(1)
    assert not pool.is_out(1)


def test_a_pool_without_slots_is_refused():
    """A component of no room cannot be meant."""
    with pytest.raises(CacheRefused, match="at least one slot"):
        Pool(0, "full")


def test_a_staging_page_is_free_when_its_last_reference_goes():
    """Sharing adds an owner; freeing drops one."""
    pool = StagingPool(3)
    pages = pool.alloc(2)
    pool.share(pages)
    pool.free(pages)
    assert (2, 1) == (pool.used, pool.references(pages[0]))
    pool.free(pages)
    assert (0, 3, 2) == (pool.used, pool.free_count, pool.peak)


def test_a_staging_page_named_twice_drops_two_references():
    """A list of pages may hold one page twice if it owns it twice, and the page goes back once."""
    pool = StagingPool(2)
    (page,) = pool.alloc(1)
    pool.share([page])
    pool.free([page, page])
    assert 2 == pool.free_count
    assert [0, 1] == sorted(pool.alloc(2))


def test_a_staging_page_without_references_is_refused():
    """Neither sharing nor freeing it changes anything."""
    pool = StagingPool(3)
    pages = pool.alloc(2)
    for call in (pool.share, pool.free):
        with pytest.raises(SlotRefused, match="page 2"):
            call([*pages, 2])
    assert [1, 1] == [pool.references(page) for page in pages]


def test_staging_gives_all_or_nothing():
    """A short pool hands out no page, and a pool of no pages is one."""
    assert StagingPool(1).alloc(2) is None
    assert StagingPool(0).alloc(1) is None


def test_staging_owners_account_for_every_reference():
    """A reference that nobody names is found."""
    pool = StagingPool(2)
    pages = pool.alloc(1)
    pool.check({"hold": pages})
    with pytest.raises(InvariantBroken, match="page 0 has 1 references"):
        pool.check({"hold": []})
