"""Ranks that drift under the policy of quarantine: all of them let go of the store, and serve on in lockstep."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold import Diverged
from stagehold.lifecycle.operations import Kind, Operation
from stagehold.testing.hand import Hand


def parks_once(hand: Hand) -> None:
    """Staging is called full where it is not: nothing of it shows on the device."""
    holds = hand.engine._parts.holds
    real, tries = holds._has_staging, [0]

    def stingy(*args: Any) -> bool:
        tries[0] += 1
        return tries[0] != 3 and real(*args)

    holds._has_staging = stingy


def forgets_a_fetch(hand: Hand) -> None:
    """The second fetch that ends is forgotten."""
    phases, count = hand.engine._parts.phases, [0]
    end = phases.end

    def forgetful(operation: Operation) -> None:
        count[0] += operation.kind is Kind.FETCH
        if operation.kind is not Kind.FETCH or count[0] != 2:
            end(operation)

    phases.end = forgetful


def evicts(hand: Hand) -> None:
    """The tree gave some of its pages."""
    hand.core.tree.evict(min(2, hand.core.tree.evictable))


def test_a_drift_in_the_store_tier_costs_the_store_on_all_ranks_in_one_tick(crowd: Any, caplog: Any) -> None:
    """Nobody stops; the link goes in the same tick everywhere, and what is admitted afterwards is admitted by all."""
    found = crowd(parks_once, ticks=60, divergence_policy="quarantine")
    assert [None] * 3 == [outcome.error for outcome in found.outcomes]
    assert [0] * 3 == [outcome.value for outcome in found.outcomes]
    detached = {
        rank.blocks[0].tick + i
        for rank in found.ranks.values()
        for i, block in enumerate(rank.blocks)
        if any(row == QUARANTINE for row in block.table()["row"])
    }
    assert 1 == len(detached)
    assert 1 == found.gathers
    for rank in found.ranks.values():
        stats = rank.hand.engine.stats()
        assert stats.count("attachment_detach").taken == 1
        assert (0, {}) == (stats.live_machines, stats.owned)
    shouts = [record.getMessage() for record in caplog.records if "going on without the store" in record.getMessage()]
    assert 3 == len(shouts)
    assert all("rank 1 differs from rank 0: tick " in shout for shout in shouts)


@pytest.mark.parametrize("tick", [12, 16])
def test_ranks_whose_device_tiers_have_parted_stop(crowd: Any, tick: int) -> None:
    """Going on would compute different things; the policy has no choice."""
    found = crowd(later={tick: evicts}, ticks=60, divergence_policy="quarantine")
    for outcome in found.outcomes:
        assert isinstance(outcome.error, Diverged)
        assert not outcome.error.divergence.salvageable


def code_of_quarantine() -> int:
    from stagehold.machines import MACHINES, rows_of
    from stagehold.specs.outcomes import Agreed
    from stagehold.specs.tick import TICK

    rows = rows_of(TICK)
    return MACHINES.index(TICK) << 8 | next(i for i, row in enumerate(rows) if row.outcome is Agreed.QUARANTINE)


QUARANTINE = code_of_quarantine()
