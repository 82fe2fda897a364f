"""K69: with two tensor ranks in each of two stages, nine tokens were expected, none came, and the engine raised.

Here a hit is what every rank of every stage can restore. One rank's loss, before the lookup, between lookup and fetch,
or while pages are read, shortens everybody's hit by as much, and is raised nowhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_stages, values

PAGES = 8


def hit(lose: Any, loser: tuple[int, int], at: str) -> Any:
    """A program that serves one prompt; `lose(hand, page 5)` happens to one rank, at one moment."""

    def program(group: Any, stage: int) -> int:
        hand = Hand(engine_options={"group": group})
        tokens = hand.prompt(PAGES)
        hand.put(tokens)
        mine = (stage, group.rank) == loser
        if mine and at == "before":
            lose(hand, hand.names(tokens)[5])
        handle = hand.arrive("a", tokens)
        hand.tick(2)
        if mine and at == "after the lookup":
            lose(hand, hand.names(tokens)[5])
        hand.tick(20)
        tokens_hit: int = hand.admit(handle).store_hit_tokens
        hand.engine.close()
        return tokens_hit

    return program


@pytest.mark.parametrize("loser", [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("at", ["before", "after the lookup"])
@pytest.mark.parametrize("how", ["drop", "damage"])
def test_one_rank_s_loss_is_everybody_s_shorter_hit(loser: tuple[int, int], at: str, how: str):
    """Two by two ranks; page 5 is gone or bad on one of them."""

    def lose(hand: Hand, name: bytes) -> None:
        getattr(hand.store, how)(name)

    _, outcomes = in_stages(2, 2, 1, hit(lose, loser, at), lag=2)
    assert [16 * 5] * 4 == values(outcomes)


def test_without_a_loss_all_of_it_is_hit():
    """The same prompt, whole."""
    _, outcomes = in_stages(2, 2, 1, hit(None, (9, 9), ""), lag=2)
    assert [16 * PAGES] * 4 == values(outcomes)
