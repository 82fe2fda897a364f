"""Where two logs part: a group that fell apart in between is not taken for ranks that did not do the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagehold import AuditLog, Engine, EngineConfig, Namespace, RankLost, Solo
from stagehold.lifecycle.facts import Facts
from stagehold.machines.audit_diff import Difference, Differs, diff


class FallsApart(Solo):
    """A group whose exchange number `at` nobody else comes to."""

    def __init__(self, at: int) -> None:
        self.left = at

    def exchange(self, facts: Facts) -> Facts:
        self.left -= 1
        if not self.left:
            raise RankLost("rank 0: rank 1 of 2 did not answer", (1,))
        return super().exchange(facts)


def log(path: Path, *, at: int, name: str = "r") -> Path:
    """A request each tick, until the exchange fails."""
    config = EngineConfig(page_size=16, device_pages=64, staging_pages=8, largest_request_tokens=512)
    with AuditLog(path) as written, closing(Engine(config, group=FallsApart(at), sink=written.block)) as engine:
        for number in range(at - 1):
            engine.arrive(f"{name}{number}", np.arange(40), Namespace("m"), 8)
            engine.tick()
        with pytest.raises(RankLost):
            engine.tick()
    return path


def parted(folder: Path, one: dict[str, Any], other: dict[str, Any]) -> Difference | None:
    return diff(log(folder / "a.jsonl", **one), log(folder / "b.jsonl", **other))


def test_ranks_that_gave_up_in_the_same_exchange_tell_the_same(tmp_path: Path) -> None:
    assert parted(tmp_path, {"at": 5}, {"at": 5}) is None


@pytest.mark.parametrize(("one", "other"), [(5, 6), (6, 5), (5, 9)])
def test_a_rank_that_heard_more_of_a_group_that_fell_apart_did_nothing_wrong(
    tmp_path: Path, one: int, other: int
) -> None:
    found = parted(tmp_path, {"at": one}, {"at": other})
    assert found is not None
    assert (found.differs, found.tick, found.event) == (Differs.APART, min(one, other), "timeout")
    gave_up, went_on = (found.expected, found.found) if one < other else (found.found, found.expected)
    assert gave_up.endswith("agreeing, timeout → stopped"), gave_up
    assert went_on.endswith(f"records in tick {min(one, other)}"), went_on
    assert "fell apart" in str(found)


def test_what_differs_before_a_group_falls_apart_is_said_first(tmp_path: Path) -> None:
    found = parted(tmp_path, {"at": 5}, {"at": 6, "name": "q"})
    assert found is not None
    assert (found.differs, found.tick) == (Differs.BIRTH, 1)
