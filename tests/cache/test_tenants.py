"""What tenants have of one resource: sums that are kept with every unit equal sums that are taken anew."""

from __future__ import annotations

import random

import pytest

from stagehold.cache.host import HostTier
from stagehold.cache.pools import StagingPool
from stagehold.cache.tenants import Quota, Tenancy

SIZE = 24
A, B, C = b"a", b"b", b"c"


def shelf(fraction: float = 0.25, *, spare: float = 0.0) -> tuple[HostTier, StagingPool, Tenancy]:
    """Host memory of 24 pages that three tenants share, six guaranteed to each."""
    active = dict.fromkeys((A, B, C), 0)
    pool = StagingPool(SIZE)
    quota = Quota(SIZE, fraction, active)
    quota.settle(A)
    tenancy = pool.tenancy = Tenancy(quota, active)
    return HostTier(pool, tier=not spare, spare=spare), pool, tenancy


def keep(host: HostTier, pool: StagingPool, tenant: bytes, first: int, last: int, *, read: bool = True) -> list[bytes]:
    """Pages [first, last) of the one path that a tenant has, as a hold or write leaves them."""
    keys = [tenant + b"%d" % page for page in range(first, last)]
    host.reclaim(len(keys), tenant)
    host.keep(keys, pool.alloc(len(keys), tenant), read=read, before=tenant + b"%d" % (first - 1))
    return keys


@pytest.mark.parametrize(
    ("fraction", "tenants", "guaranteed"), [(0.25, 1, 6), (0.25, 4, 6), (0.25, 5, 4), (1.0, 2, 12)]
)
def test_what_is_guaranteed_never_adds_up_to_more_than_there_is(fraction, tenants, guaranteed):
    """A fraction of all, or an equal part where there are too many for that."""
    quota = Quota(SIZE, fraction, {b"%d" % number: 0 for number in range(tenants)})
    quota.settle(b"0")
    assert quota.guaranteed == guaranteed
    assert quota.guaranteed * tenants <= SIZE
    assert quota.for_others(b"0") == guaranteed * (tenants - 1)
    assert quota.most(b"0") == SIZE - guaranteed * (tenants - 1)


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_what_counting_anew_gives(seed):
    """Tenants come, go with all they have, take what they may and give it back; what had been given away is overdue."""
    dice = random.Random(seed)
    active: dict[bytes, int] = {}
    quota = Quota(dice.choice((7, 24, 100)), dice.choice((0.1, 0.3, 1.0)), active)
    for _ in range(400):
        who = b"%d" % dice.randrange(6)
        if dice.random() < 0.15:
            if active.pop(who, None) is None:
                active[who] = 0
            quota.settle(who)
        else:
            room = quota.size - quota.total - quota.for_others(who)
            quota.add(who, dice.randint(-quota.used.get(who, 0), max(0, room)))
        lacks = {one: max(0, quota.guaranteed - quota.used.get(one, 0)) for one in active}
        assert (quota.lack, quota.total) == (sum(lacks.values()), sum(quota.used.values()))
        assert quota.for_others(who) == quota.lack - lacks.get(who, 0)
        assert max(0, quota.total + quota.lack - quota.size) == quota.beyond <= quota.overdue


def test_pages_go_from_those_who_have_more_than_their_own():
    """Oldest first among them; a tenant with no more than its own loses a page to nobody else."""
    host, pool, tenancy = shelf()
    small = keep(host, pool, B, 0, 6)
    first = keep(host, pool, A, 0, 8)
    last = keep(host, pool, C, 0, 10)
    host.reclaim(6, A)
    assert all(host.has(key) for key in small)
    assert [host.has(key) for key in first] == [True] * 6 + [False] * 2
    assert [host.has(key) for key in last] == [True] * 6 + [False] * 4
    assert tenancy.owned == {A: 6, B: 6, C: 6}
    host.reclaim(12, A)
    assert tenancy.owned == {B: 6, C: 6}
    assert pool.free_count == 12


def test_pages_that_are_lent_are_held():
    """They cannot be taken back, nor can what lies behind them be given up for them."""
    host, pool, tenancy = shelf()
    keys = keep(host, pool, A, 0, 12)
    assert (tenancy.held.used, tenancy.spare(A), host.idle(keys)) == ({}, 6, 12)
    pages = host.borrow(keys[4:])
    again = host.borrow(keys[8:])
    assert (tenancy.held.used, tenancy.spare(A), host.idle(keys)) == ({A: 8}, 4, 4)
    host.reclaim(SIZE, B)
    assert [host.has(key) for key in keys] == [False] * 4 + [True] * 8
    pool.free(again)
    assert tenancy.held.used == {A: 8}
    host.keep(keys[4:], pages)
    assert (tenancy.held.used, tenancy.owned) == ({}, {A: 8})


def test_a_flush_of_lent_pages_leaves_them_to_their_holders():
    """And counts them as theirs."""
    host, pool, tenancy = shelf()
    keys = keep(host, pool, A, 0, 4)
    pages = host.borrow(keys[:2])
    host.flush()
    assert (tenancy.held.used, tenancy.owned) == ({A: 2}, {A: 2})
    pool.free(pages)
    assert (tenancy.held.used, tenancy.owned, host._lanes) == ({}, {}, {})


def test_a_cache_makes_room_from_those_who_have_more_than_their_own():
    """Half of what nobody owns is the cache; what one tenant reads lately leaves the other its own."""
    host, pool, tenancy = shelf(0.25, spare=0.5)
    small = keep(host, pool, B, 0, 6)
    for start in range(0, 40, 4):
        keep(host, pool, A, start, start + 4)
    assert len(host) == SIZE // 2
    assert all(host.has(key) for key in small)
    keep(host, pool, B, 6, 12)
    assert tenancy.owned == {A: 6, B: 6}


def test_a_cache_that_is_too_large_gives_up_what_it_was_just_given():
    """Where nobody has more than its own, and what nobody owns is little."""
    host, pool, tenancy = shelf(0.25, spare=0.5)
    pool.alloc(16, A)
    keys = keep(host, pool, B, 0, 6)
    assert [host.has(key) for key in keys] == [True] * 4 + [False] * 2
    assert tenancy.owned == {A: 16, B: 4}


def test_a_page_that_is_freed_twice_changes_nothing():
    """The refusal puts back what it had taken."""
    _, pool, tenancy = shelf()
    pages = pool.alloc(3, A)
    with pytest.raises(Exception, match="has no reference"):
        pool.free([*pages, pages[0]])
    assert (tenancy.held.used, tenancy.owned, pool.free_count) == ({A: 3}, {A: 3}, SIZE - 3)


@pytest.mark.parametrize("spare", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_whose_pages_are_held_is_what_counting_anew_gives(seed, spare):
    """Holds and writes of three tenants come and go over one host memory."""
    dice = random.Random(seed)
    host, pool, tenancy = shelf(0.3, spare=spare)
    held: list[tuple[bytes, list[bytes], list[int]]] = []
    for _ in range(600):
        who = dice.choice((A, A, B, C))
        if held and dice.random() < 0.5:
            whose, keys, pages = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.7:
                host.keep(keys, pages, read=dice.random() < 0.7, before=whose)
            else:
                pool.free(pages)
        else:
            first = dice.randrange(12)
            keys = [who + b"%d" % page for page in range(first, first + dice.randint(1, 4))]
            protected = {one: min(tenancy.owned.get(one, 0), tenancy.held.guaranteed) for one in (A, B, C)}
            room = pool.free_count + host.reclaimable - tenancy.held.for_others(who)
            if all(host.has(key) for key in keys):
                if host.idle(keys) <= room:
                    held.append((who, keys, host.borrow(keys)))
            elif len(keys) <= room:
                host.reclaim(len(keys), who)
                pages = pool.alloc(len(keys), who)
                assert pages is not None
                held.append((who, keys, pages))
            assert all(tenancy.owned.get(one, 0) >= least for one, least in protected.items())
        count = {one: len({page for whose, _, pages in held for page in pages if whose == one}) for one in (A, B, C)}
        assert tenancy.held.used == {one: pages for one, pages in count.items() if pages}
        out = [page for page in range(SIZE) if pool.references(page)]
        owned = {one: sum(tenancy.of(page) == one for page in out) for one in (A, B, C)}
        assert tenancy.owned == {one: pages for one, pages in owned.items() if pages}
        assert tenancy.held.beyond == 0
