"""`stagehold explore`: what it prints, and that the programs that it prints can be run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.lifecycle.holds import HoldRules
from stagehold.specs.outcomes import Fetched
from stagehold.testing.explore import worlds
from stagehold.testing.explore.small import Budget

ALONE = next(world for world in worlds.WORLDS if world.name == "alone")
CALM = Budget(evict=0, sibling=0, abort=0, lag=0, late=0, total=1)
FIGURES = {"states", "transitions", "violations", "liveness_bound", "seconds"}


def run(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["explore", *arguments], input=text)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small worlds stand for all of them."""
    small = (replace(ALONE, budget=CALM), replace(ALONE, name="calm", budget=CALM._replace(fault=0)))
    monkeypatch.setattr(worlds, "WORLDS", small)


def test_the_search_prints_its_figures() -> None:
    """One JSON object; its sums are those of the worlds."""
    done = run("--json")
    report = json.loads(done.stdout)

    assert 0 == done.exit_code
    assert FIGURES <= set(report)
    assert 0 == report["violations"]
    assert 0 < report["liveness_bound"] <= min(world["liveness_limit"] for world in report["worlds"])
    assert ["alone", "calm"] == [world["name"] for world in report["worlds"]]
    assert report["states"] == sum(world["states"] for world in report["worlds"])
    assert all(world["whole"] for world in report["worlds"])


def test_worlds_may_have_processes_of_their_own() -> None:
    """The same figures, but for the time."""
    one, two = (json.loads(run("--json", "--processes", count, "--most", "40").stdout) for count in ("1", "2"))

    assert [world["states"] for world in one["worlds"]] == [world["states"] for world in two["worlds"]]


def test_a_violation_is_a_program_that_can_be_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a bug in the engine the search fails and its program shows the bug; without it the program runs through."""
    monkeypatch.setattr(HoldRules, "fetched", lambda self, h, good: Fetched.WHOLE)
    done = run("--world", "alone")
    program = "\n".join(line.strip() for line in done.stdout.splitlines() if line.startswith("    "))
    path = tmp_path / "program.txt"
    path.write_text(program)
    shown = run("--replay", str(path))
    monkeypatch.undo()
    monkeypatch.setattr(worlds, "WORLDS", (replace(ALONE, budget=CALM),))
    passed = run("--replay", "-", text=program)

    assert 1 == done.exit_code
    assert "DOES NOT HOLD" in done.stdout
    assert 1 == shown.exit_code
    assert "a ready hold has a wrong page" in shown.stdout
    assert 0 == passed.exit_code, passed.stdout
    assert "requests r0:" in passed.stdout


def test_a_walk_prints_its_rate() -> None:
    """So many transitions, and in which states requests were aborted."""
    report = json.loads(run("--walk", "300", "--seed", "3", "--json").stdout)

    assert 300 == report["transitions"]
    assert 0 == report["violations"]
    assert 0 < report["per_second"]


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (("--world", "nowhere"), None, "--world nowhere: expected one of alone, calm"),
        (("--walk", "5", "--soak", "0"), None, "--walk and --soak: expected one of them at a time"),
        (("--world", "calm", "--soak", "0"), None, "--world goes with a search or --walk, not with --soak"),
        (("--replay", "-", "--world", "calm"), "world calm", "--world goes with a search or --walk, not with --replay"),
        (("--replay", "-"), b"world calm\n\xff\xfe", "line 2: '\ufffd\ufffd' cannot be made here"),
        (("--replay", "-"), "tick", "line 1: 'tick', expected 'world' and one of alone, calm"),
        (("--replay", "-"), "", "the program is empty"),
        (("--replay", "-"), "world calm\nfly 3", "line 2: 'fly 3' cannot be made here, expected one of: "),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], text: str | bytes | None, expected: str) -> None:
    """Exit status 2, and a sentence that says where and what was expected."""
    done = run(*arguments, text=text)

    assert 2 == done.exit_code
    assert expected in done.output
