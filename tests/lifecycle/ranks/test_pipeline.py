"""Stages of a pipeline: followers do what the first stage recorded, whatever has ended with them meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from stagehold import Diverged, Misuse, RankLost
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.facts import pack
from stagehold.lifecycle.ranks.pipeline import FirstStage, staged
from stagehold.lifecycle.ranks.solo import Solo
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import RankWorld, in_stages, shape_of, values
from stagehold.testing.steps import Walk

QUICK, SLOW = Delays((1, 1), (1, 1), (1, 1)), Delays((3, 3), (5, 6), (4, 4))


def serving(delays: Any, found: dict[int, Any] | None = None, **settings: Any) -> Any:
    """A program for each stage: 40 passes over a few families; returns each tick's digest and the hits."""

    def program(group: Any, stage: int) -> Any:
        options = {"group": group, "strict": False}
        hand = Hand(store=SimulatedStore(stage, delays=delays[stage]), engine_options=options, **settings)
        digests, hits, waiting = [], [], []
        for number in range(40):
            tokens = hand.prompt(8, number % 5 + 1)
            if number < 15:
                hand.put(tokens, 0, 8 - 3 * (stage == 1) * (number % 5 == 2))
            waiting.append(hand.arrive(f"r{number}", tokens))
            hand.tick()
            digests.append(hand.engine.digest())
            for handle in list(waiting):
                admission = hand.visit(handle)
                if getattr(admission, "admitted", False):
                    hits.append((handle.rid, admission.store_hit_tokens))
                    hand.compute(handle)
                    hand.engine.finish(handle)
                    waiting.remove(handle)
            hand.core.tree.evict(hand.core.tree.evictable)
        if found is not None:
            found[stage] = hand.engine.stats()
        hand.engine.close()
        return digests, hits

    return program


@pytest.mark.parametrize("delays", [(QUICK, SLOW, QUICK), (SLOW, QUICK, QUICK), (SLOW, SLOW, QUICK)])
@pytest.mark.parametrize("width", [1, 2])
def test_followers_replay_the_record_however_early_or_late_their_own_completions_come(delays: Any, width: int) -> None:
    """Equal digests in every tick, one exchange a tick in each stage, and a bounded number of messages on their way."""
    made, outcomes = in_stages(3, width, 4, serving(delays), lag=4)
    ranks = values(outcomes)
    assert 1 == len({tuple(digests) for digests, _ in ranks})
    assert 1 == len({tuple(hits) for _, hits in ranks})
    assert any(tokens for _, tokens in ranks[0][1])
    exchanges = {group.exchanges for group in made.groups}
    assert 1 == len(exchanges)
    assert made.mail.most_mail <= 4 + 1


def test_what_a_later_stage_has_lost_shortens_the_hit_of_all() -> None:
    """Family 3 is short on stage 1: nobody hits more of it than stage 1 can restore, and nothing is raised."""
    _, outcomes = in_stages(2, 1, 1, serving((QUICK, QUICK)))
    (_, hits), _ = values(outcomes)
    of_three = {tokens for rid, tokens in hits if int(rid[1:]) % 5 == 2}
    assert of_three <= {0, 16 * 5}
    assert any(tokens == 16 * 8 for _, tokens in hits)


@pytest.mark.parametrize("seed", range(4))
def test_walks_of_a_pipeline_stay_equal(seed: int) -> None:
    """Two stages of two ranks in Worlds with faults of their own; everything ends, copies and shortfalls, too."""

    def program(group: Any, stage: int) -> tuple[bytes, dict[str, int]]:
        place = 2 * stage + group.rank
        world = RankWorld(seed, shape_of(seed, place, 4), group)
        # What is on its way between stages is in no snapshot, and is of one engine.
        world.rewind, world.restart = world.spare, lambda: world.spare(0)
        Walk(world).run(80)
        world.quiesce()
        world.close()
        return world.engine.digest(), dict(world.ends)

    _, outcomes = in_stages(2, 2, seed, program)
    told = values(outcomes)
    assert all(one == told[0] for one in told)


def test_a_stage_that_drifts_stops_itself_and_then_the_others() -> None:
    """It is caught by the record of the tick after; the first stage learns it from the report, `lag` ticks later."""

    def program(group: Any, stage: int) -> int:
        with Hand(attach=False, engine_options={"group": group}, divergence_policy="quarantine") as hand:
            hand.tick(5)
            if stage == 1:
                hand.arrive("nobody else's", hand.prompt(4))
            hand.tick(10)
            return 0

    _, outcomes = in_stages(3, 1, 2, program, lag=2)
    assert isinstance(outcomes[1].error, Diverged)
    assert str(outcomes[1].error).startswith("tick 7: ")
    assert isinstance(outcomes[0].error, Diverged | RankLost)
    assert isinstance(outcomes[2].error, Diverged | RankLost)


def test_a_stage_that_ends_is_missed() -> None:
    """Whoever waits for its record or its report is told."""

    def program(group: Any, stage: int) -> int:
        with Hand(attach=False, engine_options={"group": group}) as hand:
            hand.tick(5)
            if stage == 1:
                return 0
            hand.tick(20)
            return 1

    _, outcomes = in_stages(2, 1, 3, program)
    assert isinstance(outcomes[0].error, RankLost)
    assert "rank 0: rank 1 of 2 has ended, and writes no more" in str(outcomes[0].error)


@dataclass
class Noted:
    """Wires that note what goes over them; whoever is asked says the same as the first stage has said."""

    words: list[str] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    def send(self, to: int, facts: Any) -> None:
        self.words.append(f"to {to}")
        self.sent.append(facts)

    def receive(self, sender: int, length: int) -> Any:
        self.words.append(f"from {sender}")
        return self.sent[self.words.count(f"from {sender}") - 1]


@pytest.mark.parametrize("lag", [1, 3])
def test_a_report_is_waited_for_lag_ticks_after_it_was_made(lag: int) -> None:
    """Not earlier, which would stall the first stage, and not later; exchanges are counted one by one."""
    wires = Noted()
    stage = FirstStage(Solo(), wires, [1], lag)
    for _ in range(lag + 2):
        stage.exchange(pack(np.zeros(12, dtype=np.int64), bytes(16)))

    assert lag + 2 == stage.exchanges
    assert ["to 1"] * lag + ["from 1", "to 1"] * 2 == wires.words


def test_nonsense_is_refused() -> None:
    """Stages that are not, and records that would be awaited in the tick of their report."""
    with pytest.raises(Misuse, match="stage 2 of 2: expected 0 to 1"):
        staged(Solo(), None, 2, stages=2, lag=1)
    with pytest.raises(Misuse, match="lag 0: expected at least one tick"):
        FirstStage(Solo(), None, [1], 0)
