"""K09: with staging full and the tier above it switched off, an allocation was tried in a loop that never ended.

Nothing could free a page, since the loop had the only thread. Here an allocation answers once: what does not fit is
parked or a miss, and it is looked at again when something has been given back.
"""

from __future__ import annotations

from stagehold import RequestState
from stagehold.cache.pools import StagingPool
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.hold import HoldState

NEVER_GETS = Delays(exists=(1, 1), get=(10**6, 10**6), put=(1, 1))


def test_a_full_pool_answers_with_nothing_at_all():
    """Not an exception, not a part of what was asked for."""
    pool = StagingPool(4)
    pages = pool.alloc(3)
    assert pool.alloc(2) is None
    assert 1 == pool.free_count
    pool.free(pages)
    assert 2 == len(pool.alloc(2))


def test_ticks_before_a_full_staging_try_nothing_again_until_something_comes_back(hand, monkeypatch):
    """A hundred ticks, a parked hold, and not one call of an allocator."""
    h = hand(staging_pages=12, load_limit_fraction=1.0)
    for family in (1, 2):
        h.put(h.prompt(8, family))
        h.arrive(f"r{family}", h.prompt(8, family))
    h.tick(2)
    h.store.stall()
    parked = [hold for hold in h.core.holds.values() if hold.state is HoldState.PARKED]
    calls = []
    alloc = StagingPool.alloc
    monkeypatch.setattr(StagingPool, "alloc", lambda self, n, *whose: calls.append(n) or alloc(self, n, *whose))
    h.tick(100)
    assert [HoldState.PARKED] == [hold.state for hold in parked]
    assert [] == calls
    h.store.release()
    first = h.engine._roster.alive["r1"].data.handle
    h.tick()
    h.engine.abort(first)
    h.tick()
    assert [8] == calls


def test_requests_before_a_full_staging_are_computed(hand):
    """Each is admitted within its budget, with what the device holds."""
    h = hand(staging_pages=12, load_limit_fraction=1.0, delays=NEVER_GETS)
    h.put(h.prompt(12, 500))
    h.arrive("hangs", h.prompt(12, 500))
    h.tick(2)
    assert 0 == h.core.staging.free_count
    for number in range(20):
        tokens = h.prompt(8, number + 1)
        h.put(tokens)
        h.grow(tokens, 2)
        a = h.arrive(f"r{number}", tokens)
        h.until(lambda a=a: getattr(h.visit(a), "admitted", False), 60)
        assert (RequestState.COMMITTED, 32) == (h.engine.state_of(a), h.machine(a).data.n_tokens)
        h.engine.abort(a)
        h.shrink(tokens, 0)
