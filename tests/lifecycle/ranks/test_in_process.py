"""Ranks in one process: the exchange, the gathering, who is gone, and engines that share nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagehold import InProcess, Misuse, RankLost
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_turns, values, walk_as_ranks
from stagehold.testing.sharing import shared_objects


def test_all_ranks_get_the_least_of_each_fact() -> None:
    """Round after round, each in its own copy."""

    def program(member: Any) -> list[list[int]]:
        heard = []
        for round_ in range(5):
            agreed = member.exchange(np.array([member.rank, -member.rank, round_]))
            heard.append(agreed.tolist())
            agreed[:] = 99
        return heard

    group, outcomes = in_turns(4, 1, program)
    assert [[[0, -3, round_] for round_ in range(5)]] * 4 == values(outcomes)
    assert 5 == group.exchanges


def test_messages_come_in_the_order_of_ranks() -> None:
    """Of any length."""
    group, outcomes = in_turns(3, 2, lambda member: member.gather(b"x" * member.rank))
    assert [[b"", b"x", b"xx"]] * 3 == values(outcomes)
    assert 1 == group.gathers


@pytest.mark.parametrize("seed", range(4))
def test_whoever_waits_for_a_rank_that_has_ended_is_told(seed: int) -> None:
    """In whatever order they come to it; nobody waits for ever."""

    def program(member: Any) -> None:
        member.exchange(np.array([1]))
        if member.rank == 2:
            raise OSError("its device is gone")
        member.exchange(np.array([1]))

    _, outcomes = in_turns(4, seed, program)
    assert isinstance(outcomes[2].error, OSError)
    for rank in (0, 1, 3):
        assert isinstance(outcomes[rank].error, RankLost)
        assert (2,) == outcomes[rank].error.ranks
    with pytest.raises(OSError, match="its device is gone"):
        values(outcomes)


def test_facts_of_different_lengths_are_refused() -> None:
    """Each rank is told which ones there were."""
    _, outcomes = in_turns(2, 1, lambda member: member.exchange(np.arange(3 + member.rank)))
    assert any("rank 0 3, rank 1 4; is operation_window the same?" in str(one.error) for one in outcomes)


def test_a_group_that_nobody_runs_says_so() -> None:
    """Waiting would be for ever."""
    with pytest.raises(Misuse, match="there is no `pause` that would let them go on"):
        InProcess(2).member(0).exchange(np.array([1]))
    with pytest.raises(Misuse, match="rank 2: expected 0 to 1"):
        InProcess(2).member(2)
    with pytest.raises(Misuse, match="a group of 0 ranks"):
        InProcess(0)


def test_an_engine_whose_group_lost_a_rank_only_closes(hand: Any) -> None:
    """The tick stops where it stood, and the log says so."""

    def program(member: Any) -> str:
        with Hand(attach=False, engine_options={"group": member}) as one:
            one.tick(3)
            if member.rank == 1:
                return ""
            with pytest.raises(RankLost, match="rank 0: rank 1 of 2 has ended"):
                one.tick()
            with pytest.raises(Misuse, match="a rank of its group is gone, and this engine has stopped; close it"):
                one.tick()
            assert 1 == one.taken("tick.agreeing.timeout")
            return "told"

    _, outcomes = in_turns(2, 1, program)
    assert ["told", ""] == values(outcomes)


def test_the_same_seed_gives_the_same_run() -> None:
    """Digests and exchanges; another interleaving changes nothing but who was first."""
    one, other = walk_as_ranks(3, 11, 80), walk_as_ranks(3, 11, 80)
    assert one[1] == other[1]
    assert one[0].exchanges == other[0].exchanges


def engines() -> dict[int, Any]:
    """The engines of three ranks that have served something."""
    made: dict[int, Any] = {}

    def program(member: Any) -> None:
        one = Hand(engine_options={"group": member}, parts=2, page_part_bytes=64)
        one.put(one.prompt(6))
        handle = one.arrive("a", one.prompt(6))
        one.tick(6)
        one.admit(handle)
        made[member.rank] = one.engine

    values(in_turns(3, 1, program)[1])
    return made


def test_ranks_share_no_mutable_object() -> None:
    """Trees, pools, books, machines, stores and tensors are each rank's own."""
    made = engines()
    assert [] == shared_objects([made[rank] for rank in range(3)])


@pytest.mark.parametrize("name", ["tree", "beliefs", "staging", "spans", "store"])
def test_a_shared_object_is_found(name: str) -> None:
    """Planted: two ranks look at one of them."""
    made = engines()
    vars(made[2]._parts.core)[name] = vars(made[0]._parts.core)[name]
    assert shared_objects([made[rank] for rank in range(3)])
