"""The bench of the audit's cost: its parts add up, and they are a small share of a replay."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.lab.bench import records
from stagehold.lab.bench.records import BAR, bench_records


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    """A small replay, once."""
    return bench_records(requests=20, rounds=1)


def test_the_audit_is_a_small_share_of_a_replay(figures: dict[str, float]) -> None:
    """Well within the bar, even once and on a busy machine."""
    assert figures["within"]
    assert 0 < figures["audit_over_replay"] <= BAR


def test_the_parts_add_up(figures: dict[str, float]) -> None:
    """Records, details, births and blocks are all counted."""
    steps = (
        figures["records"] * figures["record_ns"]
        + figures["detailed_records"] * figures["detail_ns"]
        + figures["births"] * figures["birth_ns"]
    )

    assert figures["audit_s"] == pytest.approx(steps / 1e9 + figures["blocks_s"])
    assert all(figures[name] > 0 for name in ("record_ns", "detail_ns", "birth_ns", "blocks_s", "replay_s"))
    assert 0 < figures["detailed_records"] < figures["records"]


def test_an_audit_that_costs_too_much_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is held against what was measured."""
    monkeypatch.setattr(records, "_blocks_s", lambda _log, _path: 1e6)

    assert not bench_records(requests=4, rounds=1)["within"]


def test_the_command_prints_one_object() -> None:
    """With the share and the bar."""
    done = CliRunner().invoke(app, ["bench", "records", "--requests", "4", "--rounds", "1", "--json"])

    assert {"audit_over_replay", "bar", "within", "rounds"} <= set(json.loads(done.stdout))
