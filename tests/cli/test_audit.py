"""`stagehold audit`: what is printed, and which exit status says what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold import AuditLog
from stagehold.cli.main import app
from stagehold.machines import Journal, audit
from stagehold.machines.audit import Damage
from stagehold.specs.hold import HOLD

NOBODY = "00" * 16


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def head(log: Path) -> str:
    return audit.verify(log).digest.hex()


def rewritten(log: Path, folder: Path, how: str) -> Path:
    """A copy of the log that is damaged in one way."""
    lines = log.read_bytes().splitlines(keepends=True)
    if how == "torn":
        lines[-1] = lines[-1][:-9]
    elif how == "shorter":
        lines.pop()
    elif how == "missing":
        del lines[3]
    else:
        lines[2] = json.dumps({**json.loads(lines[2]), "tick": 7777}).encode() + b"\n"
    copy = folder / f"{how}.jsonl"
    copy.write_bytes(b"".join(lines))
    return copy


def test_a_sound_log_is_told_with_its_head(run_log: Path) -> None:
    """What stands there can be given back as `--head`."""
    told = run("verify", run_log)

    assert 0 == told.exit_code
    assert told.stdout.rstrip().endswith(f"sound; head {head(run_log)}")
    assert 0 == run("verify", run_log, "--head", head(run_log)).exit_code


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("torn", "the log ends too early"),
        ("missing", "a block is missing"),
        ("altered", "the block is not what was written"),
    ],
)
def test_each_kind_of_damage_is_one_line_and_status_1(run_log: Path, tmp_path: Path, how: str, says: str) -> None:
    """Kinds are told apart, with file and line."""
    damaged = rewritten(run_log, tmp_path, how)

    told = run("verify", damaged)

    assert (1, "") == (told.exit_code, told.stdout)
    assert 1 == len(told.stderr.splitlines())
    assert told.stderr.startswith(f"stagehold: {damaged}:")
    assert says in told.stderr


def test_a_log_of_other_declarations_is_told_as_such(tmp_path: Path) -> None:
    """A build whose rows are others wrote it."""
    with AuditLog(tmp_path / "foreign.jsonl") as log:
        Journal(machines=(HOLD,), sink=log.block).close_block(0)

    told = run("verify", tmp_path / "foreign.jsonl")

    assert 1 == told.exit_code
    assert Damage.FOREIGN.value in told.stderr


def test_a_log_cut_between_lines_is_seen_by_its_head(run_log: Path, tmp_path: Path) -> None:
    """Alone it looks like the log of a shorter run."""
    cut = rewritten(run_log, tmp_path, "shorter")

    assert 0 == run("verify", cut).exit_code
    told = run("verify", cut, "--head", head(run_log))
    assert 1 == told.exit_code
    assert f"expected last digest {head(run_log)}" in told.stderr


@pytest.mark.parametrize("text", ["", "xyz", "00", NOBODY + "00"])
def test_a_head_that_is_no_digest_is_refused(run_log: Path, text: str) -> None:
    """Status 2: the question is wrong, not the log."""
    told = run("verify", run_log, "--head", text)

    assert 2 == told.exit_code
    assert f"stagehold: --head: expected 32 hex digits, found {text!r}\n" == told.stderr


def test_a_log_is_replayed_to_where_everybody_stands(run_log: Path) -> None:
    """Instances by state, tokens by end, the head of the log."""
    told = run("replay", run_log)

    assert 0 == told.exit_code
    assert "request: 2 finished\n" in told.stdout
    assert "hold: 1 spliced\n" in told.stdout
    assert "tokens: 64 queried, 64 spliced, 0 open\n" in told.stdout
    assert told.stdout.endswith(f"head: {head(run_log)}\n")


def test_verdict_and_standings_are_data_too(run_log: Path, tmp_path: Path) -> None:
    """The same figures; the kind of damage by its name, and its place."""
    sound, standings = run("verify", run_log, "--json"), run("replay", run_log, "--json")
    damaged = run("verify", rewritten(run_log, tmp_path, "missing"), "--json")

    assert (0, 0, 1) == (sound.exit_code, standings.exit_code, damaged.exit_code)
    assert json.loads(sound.stdout) | {"sound": True, "head": head(run_log), "fault": None} == json.loads(sound.stdout)
    told = json.loads(standings.stdout)
    assert ({"finished": 2}, 64, {}, 0) == (
        told["instances"]["request"], told["tokens"]["spliced"], told["tokens"]["losses"], told["refused"],
    )  # fmt: skip
    assert head(run_log) == told["head"]
    fault = json.loads(damaged.stdout)["fault"]
    assert ("MISSING_BLOCK", 4, 4) == (fault["damage"], fault["line"], fault["block"])


def test_rows_are_counted_and_those_never_taken_are_marked(run_log: Path) -> None:
    """One Markdown table a machine."""
    told = run("stats", run_log)

    assert 0 == told.exit_code
    assert "Tokens: 64 queried, 64 spliced, 0 open." in told.stdout
    assert "\n## request\n" in told.stdout
    assert "\n| 2 | committed | finish / finish -lock -slots | finished |\n" in told.stdout
    assert "\n| **never** | committed | retract / retract -lock -slots | retracted |\n" in told.stdout


@pytest.mark.parametrize("verb", [["replay"], ["stats"], ["explain", "r1"]], ids=lambda verb: verb[0])
def test_a_log_that_cannot_be_read_is_bad_input(run_log: Path, tmp_path: Path, verb: list[str]) -> None:
    """One line, status 2, nothing printed."""
    told = run(*verb, rewritten(run_log, tmp_path, "torn"))

    assert (2, "") == (told.exit_code, told.stdout)
    assert 1 == len(told.stderr.splitlines())
    assert "the log ends too early" in told.stderr


def test_a_request_is_explained_in_sentences_or_as_data(run_log: Path) -> None:
    """The same moments, and what was reused."""
    told, data = run("explain", "r2", run_log), run("explain", "r2", run_log, "--json")

    assert (0, 0) == (told.exit_code, data.exit_code)
    assert told.stdout.startswith("r2, attempt 0: arrived in tick ")
    assert "  In short: it reused 0 tokens of the device and 64 of the store, and computed 1.\n" in told.stdout
    (attempt,) = json.loads(data.stdout)["attempts"]
    assert all(f"  tick {m['tick']}: {m['sentence']}\n" in told.stdout for m in attempt["moments"])
    assert 64 == attempt["reuse"]["store_tokens"]


def test_a_request_that_the_log_does_not_know_is_status_1(run_log: Path) -> None:
    """One line on stderr; as data, an object without attempts."""
    told, data = run("explain", "r77", run_log), run("explain", "r77", run_log, "--json")

    assert (1, "") == (told.exit_code, told.stdout)
    assert told.stderr.startswith("no request 'r77' arrived in this log (ticks 1 to ")
    assert (1, []) == (data.exit_code, json.loads(data.stdout)["attempts"])


@pytest.mark.parametrize("arguments", [["verify"], ["replay"], ["stats"], ["diff", "none.jsonl"], ["explain", "r1"]])
def test_a_file_that_is_not_there_is_named(arguments: list[str]) -> None:
    """Every reader, status 2."""
    told = run(*arguments, "none.jsonl")

    assert 2 == told.exit_code
    assert "none.jsonl" in told.stderr
    assert 1 == len(told.stderr.splitlines())


def test_equal_logs_print_nothing_and_others_their_first_difference(run_log: Path, tmp_path: Path) -> None:
    """Status 0 and 1."""
    assert (0, "") == ((same := run("diff", run_log, run_log)).exit_code, same.stdout)
    parted = run("diff", run_log, rewritten(run_log, tmp_path, "shorter"))

    assert 1 == parted.exit_code
    assert parted.stdout
