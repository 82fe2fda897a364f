"""`stagehold bench tree` takes its sizes from the command line."""

from __future__ import annotations

import json

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
