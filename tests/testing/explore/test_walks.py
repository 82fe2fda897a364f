"""Random walks of small worlds and rounds of a soak: deep instead of broad, the same for the same seed."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from stagehold.lifecycle.holds import HoldRules
from stagehold.specs.outcomes import Fetched
from stagehold.specs.request import RequestState
from stagehold.testing.explore import WORLDS, soak, walk, walks
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.walks import ABORTABLE

ENDED = (RequestState.FINISHED, RequestState.RETRACTED, RequestState.ABORTED)
PASSING = (RequestState.ANCHOR_LOST,)


def test_the_same_seed_makes_the_same_walk() -> None:
    """And another seed another one."""
    first, again, other = (walk(WORLDS[:2], seed, transitions=250) for seed in (1, 1, 2))

    assert "" == first.violation
    assert 250 == first.transitions
    assert {**asdict(first), "seconds": 0} == {**asdict(again), "seconds": 0}
    assert first.aborted_in != other.aborted_in or first.walks != other.walks


def test_a_walk_finds_what_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops there, and has a program for it."""
    monkeypatch.setattr(HoldRules, "fetched", lambda self, h, good: Fetched.WHOLE)
    found = walk(WORLDS[:1], 1, transitions=4_000)

    assert "wrong page" in found.violation
    assert "world fork" == found.program[0]
    assert found.transitions < 4_000


def test_a_walk_is_brought_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without further trouble; a unit that has no home by then is counted, and is a find with its program."""
    whole = walk(WORLDS[:1], 1, transitions=60)
    busy = Pair.rest
    monkeypatch.setattr(Pair, "rest", lambda self: (self.cores[0].tree.lock(self.chains[0], 1), busy(self)))
    left = walk(WORLDS[:1], 1, transitions=60)

    assert ("", 0) == (whole.violation, whole.unreleased)
    assert 1 < whole.walks
    assert 10 < whole.situations <= whole.transitions
    assert "there is left: {'receipts': 1" in left.violation
    assert 1 == left.walks


def test_a_walk_that_comes_to_no_end_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """More ticks without trouble than the limits allow are told; here they allow none."""
    monkeypatch.setattr(walks, "limit_of", lambda world: 0)
    monkeypatch.setattr(walks, "LIVES", 4)
    found = walk(WORLDS[:1], 1, transitions=400)

    assert "not everything has ended after 1 ticks without trouble, 0 are allowed" in found.violation
    assert found.program[-1].startswith("tick")


def test_a_request_can_be_aborted_in_all_but_passing_and_last_states() -> None:
    """The list is made from the declaration."""
    assert {state.name.lower() for state in RequestState if state not in (*ENDED, *PASSING)} == set(ABORTABLE)


def test_the_line_through_sizes() -> None:
    """Growth by one a round is seen, and noise about a level is none; two sizes are no line."""
    assert 0.0 == soak.slope([5.0, 9.0])
    assert 1.0 == pytest.approx(soak.slope([3.0, 4.0, 5.0, 6.0]))
    assert 0.0 == pytest.approx(soak.slope([3.0, 4.0, 4.0, 3.0]))
    assert 0.0 < soak.size_of_process() < 1 << 20


def test_one_round_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm, a walk, rules and small worlds; everything is counted, and no time is needed for one round."""
    for name, less in {"STORM_REQUESTS": 8, "WALK_ACTS": 20, "RULE_EXAMPLES": 1, "EXPLORED": 60}.items():
        monkeypatch.setattr(soak, name, less)
    heard: list[int] = []
    done = soak.soak(3, 0.0, lambda round_: heard.append(round_.rounds))

    assert (1, 1, 8, 1, 60) == (done.rounds, done.storms, done.requests, done.examples, done.transitions)
    assert [1] == heard
    assert done.flat
    assert done.acts > 28


def test_a_process_that_grows_is_not_flat() -> None:
    """By more than a leaked World a round, after the warm rounds."""
    grown = soak.Soaked(0, sizes=[100.0, 300.0, 301.0, *(301.0 + 5 * at for at in range(6))])
    level = soak.Soaked(0, sizes=[100.0, 300.0, 301.0, 302.0, 303.0, 301.0, 302.0])

    assert not grown.flat
    assert level.flat


@pytest.mark.soak
def test_requests_are_aborted_wherever_they_can_be() -> None:
    """A million transitions over all worlds: nothing is found or left, and a request was aborted in each state."""
    done = walk(WORLDS, 11, transitions=1_000_000)

    assert ("", 0) == (done.violation, done.unreleased), done.program
    assert [] == done.never_aborted_in
