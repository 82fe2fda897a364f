"""A view added up from blocks, held against the engine and against `explain`, over a whole storm."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from stagehold.machines.audit_explain import explain
from stagehold.machines.logs import AuditLog
from stagehold.operate.live.follower import RECENT, SLOW, TROUBLE, Follower
from stagehold.testing.hand import Hand
from stagehold.testing.storm import Storm


@pytest.fixture(scope="module")
def world():
    return Storm(5, 150).run()


def test_a_storm_adds_up_to_what_the_engine_counts(world) -> None:
    """Tokens, losses and standing instances; and nothing is kept of what has ended."""
    follower = Follower()
    for block in world.blocks:
        follower.take(block)
        orjson.dumps(follower.view())
    view, stats = follower.view(), world.engine.stats()
    assert (stats.queried, stats.spliced, stats.losses) == tuple(view["tokens"].values())
    standing = {
        f"{machine}.{state}": count for machine, counts in view["states"].items() for state, count in counts.items()
    }
    assert stats.states == standing
    assert (len(world.blocks), world.blocks[-1].tick) == (view["blocks"], view["tick"])
    assert [] == view["slow"], "all have ended"
    assert {} == follower._names == follower._teller.attempts
    assert len(view["recent"]) == RECENT


def test_troubles_are_those_that_explain_tells(world, tmp_path: Path) -> None:
    """The same sentences, request by request, none twice and none left out."""
    with AuditLog(tmp_path / "a.jsonl") as log:
        for block in world.blocks:
            log.block(block)
    expected: dict[str, int] = {}
    requests = {birth.key.rid for block in world.blocks for birth in block.births if birth.machine == 0}
    for rid in sorted(requests):
        for attempt in explain(tmp_path / "a.jsonl", rid).attempts:
            for moment in attempt.moments:
                if moment.verdict in TROUBLE:
                    name = moment.cause.name.lower()
                    expected[name] = expected.get(name, 0) + 1
    follower = Follower()
    for block in world.blocks:
        follower.take(block)
    assert expected == follower.view()["troubles"]
    assert len(expected) >= 5


def test_who_waits_longest_comes_first(hand) -> None:
    """With state, age and launches; who is admitted waits no more."""
    follower = Follower()
    h: Hand = hand(engine_options={"sink": follower.take})
    handles = []
    for number in range(SLOW + 3):
        handles.append(h.arrive(f"r{number}", h.prompt(4, number + 1)))
        h.tick()
    h.tick(2)
    slow = follower.view()["slow"]
    assert [f"r{number}" for number in range(SLOW)] == [one["request"] for one in slow]
    assert sorted((one["ticks"] for one in slow), reverse=True) == [one["ticks"] for one in slow]
    assert slow[0]["launches"] >= 1
    h.serve(handles[0])
    h.tick()
    assert "r1" == follower.view()["slow"][0]["request"]
