"""The bench of long logs: what it writes is sound, and a million records are verified in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.lab.bench.long_log import bench_log, write_log
from stagehold.machines import audit

VERIFY_SECONDS = 5.0


def holds(figures: dict[str, float]) -> bool:
    return all(figures[name] for name in ("sound", "same_standing", "same_head", "explained"))


def test_a_log_of_so_many_records_is_sound_and_the_same_twice(tmp_path: Path) -> None:
    """One seed, one log; another seed, another."""
    head = write_log(tmp_path / "one", 3_000)

    assert audit.verify(tmp_path / "one", head=head).sound
    assert head == write_log(tmp_path / "two", 3_000)
    assert head != write_log(tmp_path / "three", 3_000, seed=2)


def test_the_bench_verifies_and_replays_what_it_wrote() -> None:
    """Figures beside reading the lines."""
    done = CliRunner().invoke(app, ["bench", "log", "--records", "5000", "--json"])
    figures = json.loads(done.stdout)

    assert holds(figures)
    assert 5_000 <= figures["records"]
    assert 1 < figures["verify_over_read"]


@pytest.mark.soak
def test_a_million_records_are_verified_in_five_seconds() -> None:
    """And replayed twice to the same standing."""
    figures = bench_log()

    assert holds(figures)
    assert 1_000_000 <= figures["records"]
    assert figures["verify_s"] < VERIFY_SECONDS, figures
