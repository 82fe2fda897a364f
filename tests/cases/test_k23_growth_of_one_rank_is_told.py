"""K23: the first stage of a pipeline was killed for memory six times in three days, while the others stayed flat.

Its sends to the next stage were kept until somebody asked for them, and nobody looked. Here what is on its way between
two stages is bounded by their distance, and each exchange carries what every rank has left: one that grows is told of
by all of them, once, with both figures.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_stages, values

LAG = 4


def serve(hand: Hand, passes: int) -> None:
    for number in range(passes):
        tokens = hand.prompt(6, number % 9 + 1)
        handle = hand.arrive(f"r{number}", tokens)
        hand.tick(9)  # a lookup comes down and goes up before it counts
        hand.admit(handle)
        hand.compute(handle)
        hand.engine.finish(handle)


def test_what_is_on_its_way_between_stages_is_bounded_however_long_they_run():
    """Hundreds of passes of three stages: never more messages than the distance, and nothing else that grows."""
    sizes: dict[int, list[int]] = {}

    def program(group: Any, stage: int) -> int:
        with Hand(engine_options={"group": group}) as hand:
            for _ in range(4):
                serve(hand, 12)
                told = getattr(group, "_told", ())
                sizes.setdefault(stage, []).append(len(told) + len(hand.core.operations.live) + len(hand.core.writes))
            return hand.now

    made, outcomes = in_stages(3, 1, 1, program, lag=LAG)
    assert 1 == len(set(values(outcomes)))
    assert made.mail.most_mail <= LAG + 1
    for counts in sizes.values():
        assert max(counts) <= 2 * LAG + 8


@pytest.mark.parametrize("leaking", [0, 1])
def test_a_stage_that_grows_is_told_of_by_every_stage(leaking: int):
    """Planted: one page of staging is lost on one stage; both shout, once, and go on in lockstep."""
    shouts: dict[int, list[str]] = {0: [], 1: []}

    def program(group: Any, stage: int) -> bytes:
        def told(_tick: int, what: str, *, book: str) -> None:
            if book == "ranks":
                shouts[stage].append(what)

        with Hand(engine_options={"group": group, "strict": False, "on_violation": told}) as hand:
            serve(hand, 4)
            if stage == leaking:
                hand.core.staging.alloc(1)
            serve(hand, 6)
            return hand.engine.digest()

    _, outcomes = in_stages(2, 1, 5, program, lag=LAG)
    assert 1 == len(set(values(outcomes)))
    for told in shouts.values():
        assert 1 == len(told)
        poorest, richest = (int(pages) for pages in re.findall(r"(\d+) pages of staging", told[0]))
        assert 1 == richest - poorest
