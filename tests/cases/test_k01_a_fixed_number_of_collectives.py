"""K01: one rank waited for ever in an all-reduce; the others had left the loop early, since their batch was full.

The collective stood inside the scan of the waiting queue, which stops where the batch is full, and that is not at the
same request on every rank. Here a tick makes one exchange before anything that a rank decides, and a scan makes none:
wherever it stops, the count is the same.
"""

from __future__ import annotations

import random
from typing import Any

from stagehold import Diverged, Skip
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_turns, values


def crowd(member: Any) -> Hand:
    hand = Hand(engine_options={"group": member})
    for number in range(12):
        hand.arrive(f"r{number}", hand.prompt(4, number + 1))
    return hand


def test_scans_that_stop_at_different_requests_make_equal_exchanges():
    """Four ranks, each looking at as many of twelve waiting requests as it likes, for sixty ticks."""

    def program(member: Any) -> tuple[int, bytes]:
        hand, own = crowd(member), random.Random(member.rank)
        for _ in range(60):
            hand.tick()
            waiting = [m.data.handle for m in hand.core.requests.values()]
            for handle in waiting[: own.randint(0, len(waiting))]:
                plan = hand.engine.select(handle, 100)
                if not isinstance(plan, Skip):
                    hand.engine.release(plan)
        ticks, digest = hand.now, hand.engine.digest()
        hand.engine.close()
        return ticks, digest

    group, outcomes = in_turns(4, 1, program)
    told = values(outcomes)
    assert 1 == len(set(told))
    assert told[0][0] == group.exchanges


def test_a_scan_whose_early_stop_matters_ends_in_the_next_exchange_and_in_no_hang():
    """One rank admits two requests, the others three: every rank is told so one tick later."""

    def program(member: Any) -> None:
        hand = crowd(member)
        hand.tick(20)
        waiting = [m.data.handle for m in hand.core.requests.values()]
        for handle in waiting[: 3 - (member.rank == 2)]:
            hand.admit(handle)
        hand.tick()
        hand.tick()

    group, outcomes = in_turns(4, 2, program)
    for outcome in outcomes:
        assert isinstance(outcome.error, Diverged)
        assert "rank 2 differs from rank 0: tick 2" in str(outcome.error)
    assert 1 == group.gathers
