"""K19: an abort in an early queue never gave its tokens back.

The counter of tokens under way crept past its cap, and from then on no prefetch was launched for the rest of the
process's life, silently. Here one routine ends a claim whatever the reason, and the counters that launches look at
are zero again when nobody waits.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState


@pytest.mark.parametrize("after", range(7))
def test_launches_work_after_hundreds_of_aborts(hand, after):
    """Forty aborts at one moment each, over caps that eight leaks would exhaust."""
    h = hand(query_limit=8, staging_pages=20)
    h.store.limit(2)
    for number in range(40):
        tokens = h.prompt(6, number + 1)
        h.put(tokens)
        handle = h.arrive(f"r{number}", tokens)
        h.tick(after)
        h.engine.abort(handle)
    h.until(lambda: not h.core.operations.live and not h.core.holds, 200)
    assert (0, 0) == (h.core.hold_pages, h.core.ledger.totals["query"])
    assert {} == h.books()
    tokens = h.prompt(6, 99)
    h.put(tokens)
    last = h.arrive("last", tokens)
    h.until(lambda: h.machine(last).data.hold and h.hold_of(last).state.name == "READY", 20)
    assert 96 == h.admit(last).store_hit_tokens


def test_the_counter_is_the_sum_of_what_is_there(hand):
    """At every moment, not only at rest."""
    h = hand(staging_pages=20)
    handles = []
    for number in range(12):
        tokens = h.prompt(3 + number % 4, number + 1)
        h.put(tokens)
        handles.append(h.arrive(f"r{number}", tokens))
        h.tick()
        if number % 3 == 2:
            h.engine.abort(handles.pop(0))
        assert h.core.hold_pages == sum(hold.data.last - hold.data.start for hold in h.core.holds.values())
        h.tick()
    assert h.core.hold_pages > 0


def test_queued_requests_behind_a_full_staging_cost_nothing_when_aborted(hand):
    """They own nothing, and the launch queue passes them over."""
    h = hand(staging_pages=10, load_limit_fraction=0.5)
    h.store.stall()
    first = h.arrive("first", h.prompt(8, 1))
    waiting = [h.arrive(f"w{number}", h.prompt(8, number + 2)) for number in range(20)]
    h.tick()
    for handle in waiting:
        h.engine.abort(handle)
    h.engine.abort(first)
    h.store.release()
    h.tick(3)
    h.put(h.prompt(4, 77))
    last = h.arrive("last", h.prompt(4, 77))
    h.tick(2)
    assert RequestState.STAGED is h.engine.state_of(last)
