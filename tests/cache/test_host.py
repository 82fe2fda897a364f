"""The shelf of staged pages: a tier in `cache`, a cache in spare staging in `buffer_only`; by key, shared by count."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

from stagehold.cache.host import HostTier
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.pools import StagingPool

SIZE = 16
KEYS = [f"page {number}".encode() for number in range(SIZE)]


def shelf(*, tier: bool = False, spare: float = 0.5) -> tuple[HostTier, StagingPool]:
    """An empty one over sixteen pages of staging."""
    pool = StagingPool(SIZE)
    return HostTier(pool, tier=tier, spare=0.0 if tier else spare), pool


def put(host: HostTier, pool: StagingPool, *numbers: int, read: bool = True) -> None:
    """Pages that a hold, or a write, leaves behind."""
    host.keep([KEYS[number] for number in numbers], pool.alloc(len(numbers)), read=read)


def there(host: HostTier) -> list[int]:
    """Numbers of the resident pages, the first to go first: a copy is emptied page by page."""
    twin, pool = deepcopy((host, host._staging))
    gone: list[int] = []
    left = twin.keys()
    while left:
        twin.reclaim(pool.free_count + 1)
        gone += [KEYS.index(key) for key in left if not twin.has(key)]
        if len(twin) == len(left):
            return gone + [KEYS.index(key) for key in left]
        left = twin.keys()
    return gone


def test_a_cache_takes_its_share_of_what_nobody_owns():
    """Half of sixteen; half of eight where eight are in use."""
    host, pool = shelf()
    put(host, pool, *range(12))
    assert 8 == len(host)
    host.flush()
    pool.alloc(8)
    put(host, pool, *range(8))
    assert (4, 4) == (len(host), pool.free_count)


@pytest.mark.parametrize("spare", [0.0, 0.25, 1.0])
def test_the_share_is_a_setting(spare):
    """None, some, or all."""
    host, pool = shelf(spare=spare)
    put(host, pool, *range(16))
    assert int(16 * spare) == len(host) == SIZE - pool.free_count


def test_a_tier_takes_all_of_staging():
    """It is what staging is for there."""
    host, pool = shelf(tier=True)
    put(host, pool, *range(16))
    assert (16, 0, 16) == (len(host), pool.free_count, host.reclaimable)


def test_what_was_only_written_goes_before_what_was_read():
    """It passes by the cache."""
    host, pool = shelf()
    put(host, pool, 0, 1, 2, 3)
    put(host, pool, 4, 5, 6, 7, read=False)
    put(host, pool, 8, 9)
    assert [5, 4, 3, 2, 1, 0, 9, 8] == there(host)


def test_a_read_hit_promotes_what_was_written():
    """From then on it is a page like those that were read."""
    host, pool = shelf()
    put(host, pool, 0, 1, read=False)
    pool.free(host.borrow([KEYS[0]]))
    put(host, pool, *range(2, 9))
    assert (True, False) == (host.has(KEYS[0]), host.has(KEYS[1]))


def test_the_least_recently_used_goes_first_and_of_a_prefix_its_end():
    """What has lost its head is of no use to anybody. A head that was used since counts as used when its tail goes."""
    host, pool = shelf()
    put(host, pool, 0, 1, 2, 3)
    put(host, pool, 4, 5, 6, 7)
    pool.free(host.borrow([KEYS[0], KEYS[1]]))
    put(host, pool, 8, 9, 10, 11)
    assert [5, 4, 11, 10, 9, 8, 1, 0] == there(host)


def test_a_tail_that_came_later_goes_before_its_head():
    """A long prompt is written piece by piece; nobody is left with pieces that lead nowhere."""
    host, pool = shelf(tier=True)
    put(host, pool, 0, 1)
    put(host, pool, 8, 9)
    host.keep(KEYS[2:4], pool.alloc(2), before=KEYS[1])
    assert [9, 8, 3, 2, 1, 0] == there(host)


def test_a_head_that_was_used_since_outlives_its_tail():
    """It is as recent as its own last use."""
    host, pool = shelf(tier=True)
    put(host, pool, 0, 1, 2)
    pool.free(host.borrow(KEYS[:2]))
    put(host, pool, 8)
    pool.free(host.borrow(KEYS[:2]))
    assert [2, 8, 1, 0] == there(host)


def test_what_lies_in_front_of_a_lent_page_can_be_had():
    """It is counted as reclaimable, so it has to come."""
    host, pool = shelf(tier=True)
    put(host, pool, *range(4))
    lent = host.borrow(KEYS[3:4])
    assert 3 == host.reclaimable
    host.reclaim(SIZE - 1)
    assert (15, [KEYS[3]]) == (pool.free_count, host.keys())
    pool.free(lent)


def test_asking_renews_nothing():
    """Only borrowing does."""
    host, pool = shelf()
    put(host, pool, *range(8))
    before = there(host)
    host.has(KEYS[7])
    host.reach(Chain(Namespace("m"), np.arange(65, dtype=np.uint32), 16), 0, 4)
    assert before == there(host)


def test_a_page_that_is_lent_stays():
    """A hold has a reference; the page goes when that has come back, and another goes meanwhile."""
    host, pool = shelf()
    put(host, pool, *range(8))
    lent = host.borrow([KEYS[7]])
    host.reclaim(SIZE)
    assert ([7], 15, 0) == (there(host), pool.free_count, host.reclaimable)
    pool.free(lent)
    host.reclaim(SIZE)
    assert [] == there(host)


def test_a_duplicate_keeps_the_page_that_is_there():
    """The second copy goes back to the pool, and counts as a use of the first only where it was read."""
    host, pool = shelf()
    put(host, pool, 0, read=False)
    first = host.pages()
    put(host, pool, 0)
    assert (first, 15) == (host.pages(), pool.free_count)
    put(host, pool, *range(1, 8), read=False)
    put(host, pool, 8)
    assert host.has(KEYS[0])


def test_room_is_made_only_where_it_is_missing():
    """What is free already costs the cache nothing."""
    host, pool = shelf()
    put(host, pool, *range(8))
    host.reclaim(8)
    assert 8 == len(host)
    host.reclaim(10)
    assert (6, 10) == (len(host), pool.free_count)


def test_every_page_has_an_owner():
    """The tier is one of the owners that the pool is checked against."""
    host, pool = shelf()
    put(host, pool, *range(4), read=False)
    put(host, pool, *range(4, 8))
    lent = host.borrow(KEYS[2:6])
    pool.check({"page cache": host.pages(), "hold": lent})
    host.flush()
    pool.check({"page cache": host.pages(), "hold": lent})
