"""`stagehold replay --ranks`, and what it says of ranks that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "--requests", "12", *arguments])


def test_ranks_in_this_process_as_json(tmp_path: Path) -> None:
    """The fields of a replay, then the group's; a log for each rank."""
    done = run("--ranks", "3", "--in-process", "--json", "--audit", str(tmp_path / "a.jsonl"))

    assert 0 == done.exit_code, done.output
    report = json.loads(done.stdout)
    assert (3, True, 0) == (report["ranks"], report["in_process"], report["differing_ticks"])
    assert report["ticks"] == report["exchanges"]
    assert [str(tmp_path / f"a.rank{rank}.jsonl") for rank in range(3)] == report["audit_logs"]
    assert all(Path(log).is_file() for log in report["audit_logs"])


def test_ranks_in_this_process_as_a_table(tmp_path: Path) -> None:
    """The last line is about the group; the store stays where it was asked to."""
    store = tmp_path / "store"
    done = run("--ranks", "2", "--in-process", "--audit", str(tmp_path / "a.jsonl"), "--store-folder", str(store))

    assert 0 == done.exit_code, done.output
    assert "ranks: 2, in turns in this process; " in done.stdout
    assert ", 0 ticks recorded differently; " in done.stdout
    assert any(store.rglob("*"))


def test_the_log_pair_of_two_ranks_tells_the_same(tmp_path: Path) -> None:
    """`audit diff` prints nothing and exits with 0."""
    run("--ranks", "2", "--in-process", "--audit", str(tmp_path / "a.jsonl"))
    done = CliRunner().invoke(app, ["audit", "diff", *(str(tmp_path / f"a.rank{rank}.jsonl") for rank in range(2))])

    assert (0, "") == (done.exit_code, done.stdout)


@pytest.mark.parametrize("arguments", [["--ranks", "0"], ["--ranks", "65"], ["--group-timeout", "0"]])
def test_ranks_and_times_that_cannot_be_are_refused(arguments: list[str]) -> None:
    """Exit status 2."""
    assert 2 == run(*arguments).exit_code
