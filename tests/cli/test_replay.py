"""`stagehold replay` and the readers of its log, as people and programs run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold import InvariantBroken
from stagehold.cli.errors import BadInput
from stagehold.cli.main import app
from stagehold.cli.replay import refuse_oversize
from stagehold.lab.replay import Replay, ReplayOptions
from stagehold.lab.report import ReplayReport


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})


@pytest.fixture(name="log", scope="module")
def _log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("log") / "runs" / "a.jsonl"
    assert 0 == run("replay", "--requests", 12, "--audit", log).exit_code
    return log


def test_json_is_one_object(tmp_path: Path) -> None:
    """Nothing else is printed, and the log lies where it says."""
    done = run("replay", "--requests", 12, "--restart-after", 6, "--json", "--audit", tmp_path / "a.jsonl")

    report = json.loads(done.stdout)
    assert 0 == done.exit_code
    assert 12 == report["requests"]
    assert str(tmp_path / "a.2.jsonl") == report["audit_log"]
    assert Path(report["audit_log"]).is_file()
    assert not done.stderr


def test_the_table_names_scale_sizes_and_log(tmp_path: Path) -> None:
    """People see what was replayed, on which sizes, and where the log lies."""
    done = run("replay", "--requests", 5, "--mode", "cache", "--no-strict", "--audit", tmp_path / "a.jsonl")

    assert 0 == done.exit_code
    assert "5 requests, cache" in done.stdout
    assert "a block of 512 tokens is replayed as 16" in done.stdout
    assert f"audit log {tmp_path / 'a.jsonl'}" in done.stdout


def test_what_does_not_fit_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    """Memory for the pools and disk for the store are counted before anything is allocated."""
    small = Replay(ReplayOptions(audit=tmp_path / "a.jsonl", requests=5))
    pools = (small.config.device_pages + small.config.staging_pages) * small.config.page_bytes
    stored = small.workload.working_set_pages * small.config.page_bytes

    refuse_oversize(small, memory=pools, disk=stored)
    with pytest.raises(BadInput, match=f"are {pools:,} bytes, {pools - 1:,} of memory"):
        refuse_oversize(small, memory=pools - 1, disk=stored)
    with pytest.raises(BadInput, match=f"is {stored:,} bytes, {stored - 1:,} are free"):
        refuse_oversize(small, memory=pools, disk=stored - 1)


def test_a_replay_that_is_too_large_is_one_line(tmp_path: Path) -> None:
    """A pool of a terabyte is refused at once, exit status 2, and nothing was started."""
    done = run("replay", "--requests", 5, "--device-pages", 10_000_000, "--audit", tmp_path / "a.jsonl")

    assert 2 == done.exit_code
    assert "of memory are available; lower --requests" in done.stderr
    assert not (tmp_path / "a.jsonl").exists()


def test_a_fault_is_said_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a report with wrong bytes fails the command."""
    monkeypatch.setattr(ReplayReport, "faults", lambda _self: ["7 wrong bytes"])

    done = run("replay", "--requests", 3, "--audit", tmp_path / "a.jsonl")

    assert 1 == done.exit_code
    assert "stagehold: 7 wrong bytes\n" == done.stderr


def test_a_broken_invariant_is_said_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: books that do not balance stop the run with one line that names the log."""

    def breaks(_self: Replay) -> ReplayReport:
        raise InvariantBroken("tick 7: tokens: 3 are missing")

    monkeypatch.setattr(Replay, "run", breaks)

    done = run("replay", "--requests", 3, "--audit", tmp_path / "a.jsonl")

    assert 1 == done.exit_code
    assert f"invariant broken: tick 7: tokens: 3 are missing; the audit log ends there: {tmp_path}" in done.stderr


def test_the_log_of_a_replay_is_sound(log: Path) -> None:
    """`audit verify` walks every record of it along the rows."""
    done = run("audit", "verify", log)

    assert 0 == done.exit_code
    assert "sound" in done.stdout


def test_an_altered_log_is_named(log: Path, tmp_path: Path) -> None:
    """One changed record ends `audit verify` with 1 and a line that tells where."""
    lines = log.read_bytes().splitlines(keepends=True)
    altered = tmp_path / "altered.jsonl"
    altered.write_bytes(b"".join(lines[:5] + lines[6:]))

    done = run("audit", "verify", altered)

    assert 1 == done.exit_code
    assert str(altered) in done.stderr


def test_equal_logs_have_no_difference(log: Path, tmp_path: Path) -> None:
    """The same replay again tells the same, and nothing is printed."""
    again = tmp_path / "b.jsonl"
    run("replay", "--requests", 12, "--audit", again)

    done = run("audit", "diff", log, again)

    assert (0, "") == (done.exit_code, done.stdout)


def test_the_first_difference_is_printed(log: Path, tmp_path: Path) -> None:
    """Another seed parts from the first run in some tick, which is named."""
    other = tmp_path / "b.jsonl"
    run("replay", "--requests", 12, "--seed", 1, "--audit", other)

    done = run("audit", "diff", log, other)

    assert 1 == done.exit_code
    assert "tick" in done.stdout


def test_a_restart_that_would_never_come_is_refused(tmp_path: Path) -> None:
    """Nothing would be restarted after the last request."""
    done = run("replay", "--requests", 3, "--restart-after", 3, "--audit", tmp_path / "a.jsonl")

    assert 2 == done.exit_code
    assert "--restart-after 3: expected less than the 3 requests of this run" in done.stderr


def test_host_memory_alone_takes_what_a_store_would(tmp_path: Path) -> None:
    """No store is asked for anything, and every offered token has its end."""
    done = run("replay", "--requests", 12, "--mode", "cache", "--no-store", "--json", "--audit", tmp_path / "a.jsonl")
    report = json.loads(done.stdout)
    assert (0, "") == (done.exit_code, done.stderr)
    assert report["offered_tokens"] == report["kept_tokens"] > 0 == report["written_tokens"] == report["stored_tokens"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--no-store: expected --mode cache; with buffer_only, host memory serves nothing by itself"),
        (["--mode", "cache", "--modes"], "--no-store: expected no --modes beside it"),
        (["--mode", "cache", "--fail-writes", 20], "--no-store: expected no --fail-writes beside it"),
        (["--mode", "cache", "--store-folder", "here"], "--no-store: expected no --store-folder beside it"),
    ],
)
def test_options_of_a_store_are_refused_without_one(arguments: list[object], told: str) -> None:
    """Exit status 2, before anything is started."""
    done = run("replay", "--requests", 3, "--no-store", *arguments)
    assert 2 == done.exit_code
    assert told in " ".join(done.stderr.split())
