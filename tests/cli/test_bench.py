"""`stagehold bench tree` takes its sizes from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "tree", *arguments])


def test_the_tree_bench_measures_what_it_is_asked_for() -> None:
    """Two sizes and one length give rows of just those."""
    done = run("--turns", "50", "--turns", "80", "--length", "1024", "--reps", "4", "--json")

    rows = json.loads(done.stdout)["rows"]
    assert {50, 80} == {row["turns"] for row in rows}
    assert {0, 1024} == {row["length"] for row in rows}
    assert {"op", "page", "length", "turns", "median_us", "min_us"} <= set(rows[0])


def test_a_peer_that_is_not_there_is_refused() -> None:
    """One line, exit status 2, before anything is measured."""
    done = run("--peer", "nowhere/python")

    assert 2 == done.exit_code
    assert "stagehold: --peer nowhere/python: expected a Python interpreter\n" == done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--length", "2"], "--length 2: expected one of 1024, 8192, 32768, 131072"),
        (["--page", "7", "--turns", "3", "--reps", "1"], "--page: page size 7: expected a divisor of 64"),
    ],
)
def test_a_size_that_cannot_be_measured_is_refused(arguments: list[str], said: str) -> None:
    """One line, exit status 2."""
    done = run(*arguments)

    assert 2 == done.exit_code
    assert f"stagehold: {said}" in done.stderr
