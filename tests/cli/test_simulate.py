"""`stagehold simulate`, as people and programs run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.lab.traces import shipped_trace
from stagehold.serving.model import ready

LOAD = ready.load_model
SMALL = ("--requests", 20, "--scale", 32, "--page-size", 16, "--device-pages", 560, "--store-gbps", 0.2)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["simulate", *(str(a) for a in arguments)], env={"COLUMNS": "100"})


def test_json_is_one_object_and_repeats(tmp_path: Path) -> None:
    """Nothing of the machine or the moment is in it; the whole run and its log are written beside it."""
    first = run(*SMALL, "--json", "--out", tmp_path / "run.json", "--audit", tmp_path / "a.jsonl")
    again = run(*SMALL, "--json")

    assert 0 == first.exit_code, first.output
    assert first.stdout == again.stdout
    found, written = json.loads(first.stdout), json.loads((tmp_path / "run.json").read_bytes())
    assert found.items() <= written.items()
    assert 20 == found["requests"]
    assert str(tmp_path / "a.jsonl") == written["audit_log"]
    assert 0 == CliRunner().invoke(app, ["audit", "verify", written["audit_log"]]).exit_code


def test_the_table_names_costs_sizes_and_digest(tmp_path: Path) -> None:
    """People see on what it was simulated, and where the run lies."""
    done = run(*SMALL, "--step-ms", 5, "--retries", 0, "--out", tmp_path / "run.json")

    assert 0 == done.exit_code
    assert "20 requests, buffer_only, llama-3.1-8b on 4 x h100" in done.stdout
    assert "560 on the device, 672 of staging" in done.stdout
    assert f"run written to {tmp_path / 'run.json'}" in done.stdout
    assert 5 == json.loads((tmp_path / "run.json").read_bytes())["step_ms"]


@pytest.mark.parametrize("order", ["lru", "s3fifo", "belady"])
def test_what_an_engine_leaves_to_people_is_chosen(order: str) -> None:
    """The order of eviction, the gate before the store, and the pace of retries; the figures say what was chosen."""
    chosen = ("--eviction", order, "--fetch-gate", "auto", "--retries", 2, "--retry-interval", 3)
    done = run(*SMALL, *chosen, "--json")

    assert 0 == done.exit_code, done.output
    found = json.loads(done.stdout)
    assert (order, "auto", 0) == (found["eviction"], found["fetch_gate"], found["gate_closings"])
    assert found["max_retries"] <= 2


def test_the_pace_of_this_machine_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told in a form in which it can be given again."""
    monkeypatch.setattr(ready, "load_model", lambda: LOAD(random=True))
    first = run(*SMALL, "--calibrate", "--json")
    told = first.stderr.removeprefix("stagehold: measured ").split()
    again = run(*SMALL, *told, "--json")

    assert 0 == first.exit_code, first.output
    assert ["--prefill-rate", "--step-ms"] == told[::2]
    measured, given = json.loads(first.stdout), json.loads(again.stdout)
    assert "a small gemma3 hybrid, no real model, measured" == measured["cost"]
    assert given["prefill_tokens_per_second"] == pytest.approx(measured["prefill_tokens_per_second"], rel=1e-4)
    assert given["step_ms"] == pytest.approx(measured["step_ms"], rel=1e-4)


def test_a_trace_that_is_shipped_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does for a sweep; a file of that name goes before it."""
    monkeypatch.chdir(tmp_path)
    options = ("--requests", 3, "--device-pages", 4000, "--json")
    shipped = json.loads(run("--trace", "miniswe", *options).stdout)
    (tmp_path / "miniswe").write_bytes(shipped_trace("conversation").read_bytes())
    own = json.loads(run("--trace", "miniswe", *options).stdout)

    assert shipped_trace("miniswe").name == shipped["trace"]
    assert "miniswe" == own["trace"]
    assert json.loads(run(*options).stdout)["digest"] == own["digest"] != shipped["digest"]


def test_a_fault_is_said_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a run with phantoms fails the command, after its figures were printed."""
    monkeypatch.setattr("stagehold.lab.simulate_report.faults", lambda _found: ["7 phantom hit tokens"])
    done = run(*SMALL, "--json")

    assert 1 == done.exit_code
    assert "stagehold: 7 phantom hit tokens\n" == done.stderr
    assert 20 == json.loads(done.stdout)["requests"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--store-latency-ms", "2-1"], "expected milliseconds such as 1 or 0.5-2"),
        (["--format", "csv"], "--format csv: expected one of"),
        (["--device-pages", 10], "no such request could ever run"),
        (["--trace", "nowhere"], "nowhere: expected a readable file"),
        (["--seed", 1 << 63], "'--seed': Input should be less than or equal to 9223372036854775807"),
        (["--store-gbps", 0.001], "no page came back over 0.001 GB/s, 0.5 to 2 ms an operation"),
        (["--store-gb", 0.001], "with room for 0.001 GB: expected"),
        (["--no-store"], "--no-store: expected --mode cache"),
        (["--no-store", "--mode", "cache", "--store-gb", 1], "--no-store: expected no --store-gb beside it"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], told: str) -> None:
    """Before anything is started, exit status 2."""
    done = run("--requests", 3, *arguments)

    assert 2 == done.exit_code
    assert told in done.stderr
