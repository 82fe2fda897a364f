"""Tenants, clients who give up, and the crowded run that reaches the rare states."""

from __future__ import annotations

from collections import Counter

import pytest

from stagehold.lab.expand import Scale
from stagehold.lab.hangups import MOST_PASSES, HangUps
from stagehold.lab.replay import Replay, ReplayOptions
from stagehold.lab.traces import shipped_trace
from stagehold.lab.workload import load_workload


def fates(per_cent: float, seed: int) -> list[tuple[int, str]]:
    """(pass, request) of those who give up, of 200 that arrive in the first pass."""
    draw = HangUps(per_cent, seed)
    for number in range(200):
        draw.arrived(f"r{number}")
    return [(turn, rid) for turn in range(1, MOST_PASSES + 2) for rid in draw.due()]


def test_as_many_clients_give_up_as_asked_for_and_equal_seeds_agree():
    """A tenth of them, each once, within the most passes."""
    assert 8 <= len(fates(10, 1)) <= 35
    assert fates(10, 1) == fates(10, 1)
    assert fates(10, 1) != fates(10, 2)
    assert max(Counter(rid for _, rid in fates(50, 3)).values()) == 1
    assert fates(0, 1) == []


def test_a_share_that_is_no_percentage_is_refused():
    """The message says what was expected."""
    with pytest.raises(ValueError, match="expected 0 to 100 per cent, got 101"):
        HangUps(101, 0)


def test_tenants_share_nothing_and_a_conversation_stays_with_one():
    """Ideal hits shrink with the shared system prompt, and not to nothing."""
    one, many = (load_workload(shipped_trace(), requests=300, scale=Scale(), page_size=16, tenants=n) for n in (1, 16))
    assert 0 < sum(many.ideal_hits) < sum(one.ideal_hits)
    assert {request.tenant for request in many.requests} == set(range(16))


def test_a_crowded_run_with_clients_who_give_up_has_right_bytes(tmp_path):
    """Aborts, lost races and waits that ran out, with every page compared and all books checked."""
    options = ReplayOptions(
        audit=tmp_path / "log.jsonl", requests=150, tenants=16, hang_ups=20, speed=2, device_pages=260,
        store_delay=24, strict=True,
    )  # fmt: skip
    report = Replay(options).run()
    assert report.faults() == []
    assert report.requests == 150
    assert report.state_entries["request.aborted"] > 0
    assert report.state_entries["request.aborted"] + report.state_entries["request.finished"] == 150
    assert report.compared_bytes > 0
