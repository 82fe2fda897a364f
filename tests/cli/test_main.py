"""Bad input is one line on stderr and exit status 2, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_version_is_printed() -> None:
    """`--version` needs no verb."""
    assert "stagehold 0.1.0\n" == run("--version").stdout


def test_a_malformed_trace_line_is_named(tmp_path: Path) -> None:
    """File, line and what was expected."""
    trace = tmp_path / "bad.jsonl"
    good = {"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [1]}
    trace.write_text(json.dumps(good) + "\n" + '{"timestamp": 1}\n')

    done = run("replay", "--trace", trace, "--audit", tmp_path / "a.jsonl")

    assert 2 == done.exit_code
    assert (
        f"stagehold: {trace}:2: expected `input_length`, a whole number of at least 1, found nothing\n" == done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "--trace", "none.jsonl"], "none.jsonl: expected a readable file"),
        (["replay", "--requests", "3", "--device-pages", "1"], "no such request could ever run"),
        (["replay", "--requests", "0"], "greater than or equal to 1"),
        (["replay", "--mode", "fast"], "'cache', 'buffer_only'"),
        (["audit", "verify", "none.jsonl"], "stagehold: none.jsonl: No such file or directory\n"),
        (["sing"], "No such command 'sing'"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    """Every verb says what is wrong, on stderr, with exit status 2."""
    audit = ["--audit", str(tmp_path / "a.jsonl")] if arguments[0] == "replay" else []

    done = run(*arguments, *audit)

    assert 2 == done.exit_code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
