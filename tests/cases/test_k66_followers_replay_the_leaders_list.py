"""K66: stages of a pipeline took different numbers of events, and one crashed when it popped from an empty list.

Each stage drained its own queue by a count that came from another one. Here the first stage fixes which operations
ended in a tick, by their identities; the others end exactly these in that tick, and the first stage names none that
not every stage has.
"""

from __future__ import annotations

from typing import Any

import pytest

from stagehold import Diverged, RankLost
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.facts import TAIL
from stagehold.lifecycle.ranks.pipeline import LaterStage
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_stages, values

SPEEDS = (Delays((1, 1), (1, 2), (1, 1)), Delays((2, 5), (2, 9), (2, 6)), Delays((1, 8), (1, 3), (1, 9)))


def ended(group: Any, stage: int) -> list[tuple[int, int]]:
    """Serve on a store as fast as this stage's; which operation ended in which tick."""
    hand = Hand(store=SimulatedStore(stage, delays=SPEEDS[stage]), engine_options={"group": group})
    events: list[tuple[int, int]] = []
    phases = hand.engine._parts.phases
    end = phases.end

    def noted(operation: Any) -> None:
        events.append((hand.now, operation.number))
        end(operation)

    phases.end = noted
    waiting: list[Any] = []
    for number in range(30):
        tokens = hand.prompt(6, number % 7 + 1)
        hand.put(tokens, 0, 4 + number % 3)
        waiting.append(hand.arrive(f"r{number}", tokens))
        hand.tick(2)
        for handle in list(waiting):
            if getattr(hand.visit(handle), "admitted", False):
                hand.compute(handle)
                hand.engine.finish(handle)
                waiting.remove(handle)
        hand.core.tree.evict(hand.core.tree.evictable)
    hand.engine.close()
    return events


@pytest.mark.parametrize("seed", range(3))
def test_every_stage_ends_the_same_operations_in_the_same_ticks(seed: int):
    """Three stages, each with completions of its own at times of its own."""
    _, outcomes = in_stages(3, 1, seed, ended)
    first, *others = values(outcomes)
    assert len(first) > 60
    assert [first, first] == others


def test_a_follower_that_acts_on_its_own_completions_is_caught(monkeypatch: pytest.MonkeyPatch):
    """Planted: stage 1 takes its own facts for the record."""
    real = LaterStage.exchange

    def own(self: Any, facts: Any) -> Any:
        record = real(self, facts)
        record[: (len(facts) - TAIL) // 3] = facts[: (len(facts) - TAIL) // 3]
        return record

    monkeypatch.setattr(LaterStage, "exchange", own)
    _, outcomes = in_stages(2, 1, 1, ended)
    assert all(isinstance(outcome.error, Diverged | RankLost) for outcome in outcomes)
    assert any(isinstance(outcome.error, Diverged) for outcome in outcomes)
