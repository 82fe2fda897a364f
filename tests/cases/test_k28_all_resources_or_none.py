"""K28: entries were pinned, the allocation of staging then failed, and the pins stayed; in three hours nothing moved.

Here IO commit looks at pin, staging and IO together and takes all of them or none, so a try that fails has nothing to
give back, however often it is repeated.
"""

from __future__ import annotations

from stagehold import RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.hold import HoldState


def test_hundreds_of_failed_tries_leave_no_pin(hand):
    """Writes that hang keep most of staging; sixty requests park behind it, with live anchors, and give up."""
    h = hand(
        delays=Delays(exists=(1, 1), get=(1, 1), put=(10**6, 10**6)),
        put_limit=10**6,
        park_limit=6,
        retry_max_reissues=1,
    )
    h.run("writer", h.prompt(30, 500))
    h.tick(2)
    assert 10 == h.core.staging.free_count
    for number in range(60):
        tokens = h.prompt(15, number + 1)
        h.put(tokens)
        h.grow(tokens, 2)
        handle = h.arrive(f"r{number}", tokens)
        h.until_state(handle, RequestState.CAPPED, patience=60)
        assert 0 == h.core.tree.pinned
        h.engine.abort(handle)
    h.tick()
    assert h.taken("hold.parked.io_commit.NO_STAGING") >= 60
    assert h.core.tree.evictable == h.core.tree.total
    small = h.prompt(8, 900)
    h.put(small)
    last = h.arrive("last", small)
    h.tick(3)
    assert 128 == h.admit(last).store_hit_tokens


def test_the_three_resources_appear_together(hand):
    """Before the commit none is owned, after it all are."""
    h = hand(delays=Delays(exists=(1, 1), get=(50, 50), put=(1, 1)), pin_fraction=0.08)
    seen = set()
    for number in range(3):
        tokens = h.prompt(8, number + 1)
        h.put(tokens)
        h.grow(tokens, 3)
        handle = h.arrive(f"r{number}", tokens)
        for _ in range(4):
            h.tick()
            if h.machine(handle).data.hold:
                hold = h.hold_of(handle)
                seen.add((hold.state, h.core.ledger.owned(hold.number)))
    assert {
        (HoldState.PARKED, frozenset()),
        (HoldState.FETCHING, frozenset({"staging", "pin", "io"})),
    } == seen
