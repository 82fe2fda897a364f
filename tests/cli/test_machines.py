"""`stagehold machines check` and `stagehold bench machine`: what they print, and when they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.machines import explorer
from stagehold.specs.worlds import DEFAULT_WORLDS

SMALL = tuple(world for world in DEFAULT_WORLDS if world.name in ("larger than staging", "store open for ever"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small worlds stand for all of them; the full search has its own test."""
    assert 2 == len(SMALL)
    monkeypatch.setattr("stagehold.machines.explorer.check.DEFAULT_WORLDS", SMALL)


def test_the_check_prints_machines_worlds_and_figures() -> None:
    """A person sees each world as it is done, each machine with its bound, and the totals."""
    done = run("machines", "check")

    assert 0 == done.exit_code
    assert "world larger than staging: " in done.stdout
    assert "machine hold: " in done.stdout
    assert " 0 deadlocks, 0 leaks" in done.stdout


def test_the_check_prints_one_json_object() -> None:
    """Programs read machines, product states, and what was found."""
    report = json.loads(run("machines", "check", "--json").stdout)

    assert {"machines", "product_states", "deadlocks", "leaks", "oracle_cells", "oracle_differences"} <= set(report)
    assert {"name", "states", "rows", "step_bound", "problems"} <= set(report["machines"][0])
    assert 0 == report["oracle_differences"]


def test_a_finding_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a report that does not hold fails the command, in both forms."""
    check = explorer.table_check

    def fails(**options: Any) -> dict[str, Any]:
        return {**check(**options), "holds": False}

    monkeypatch.setattr(explorer, "table_check", fails)

    assert 1 == run("machines", "check").exit_code
    assert 1 == run("machines", "check", "--json").exit_code


def test_the_bench_prints_figures_as_lines_and_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names in both forms."""
    monkeypatch.setattr("stagehold.lab.bench.machine.ROUNDS", 2)
    lines = run("bench", "machine").stdout
    figures = json.loads(run("bench", "machine", "--json").stdout)

    assert {"floor_ns", "step_ns", "audited_step_ns", "transitions_ns", "instance_bytes"} <= set(figures)
    assert all(f"{name}: " in lines for name in figures)


def test_the_bench_takes_the_steps_of_a_log(monkeypatch: pytest.MonkeyPatch, run_log: Path, tmp_path: Path) -> None:
    """Measured, or kept as a mix."""
    monkeypatch.setattr("stagehold.lab.bench.machine.ROUNDS", 2)
    figures = json.loads(run("bench", "machine", "--json", "--log", str(run_log)).stdout)
    kept = run("bench", "machine", "--log", str(run_log), "--keep", str(tmp_path / "mix.json"))

    assert (0, "") == (kept.exit_code, kept.stdout)
    assert figures["steps"] == sum(json.loads((tmp_path / "mix.json").read_text())["rows"].values())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--keep", "mix.json"], "--keep: expected --log beside it"),
        (["--log", "none.jsonl"], "none.jsonl"),
    ],
)
def test_a_bench_that_cannot_be_run_says_why(arguments: list[str], says: str) -> None:
    """One line, exit status 2."""
    refused = run("bench", "machine", *arguments)

    assert 2 == refused.exit_code
    assert 1 == len(refused.stderr.splitlines())
    assert says in refused.stderr
