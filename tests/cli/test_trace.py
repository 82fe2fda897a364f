"""`stagehold trace`: a trace's figures and its conversion, as people and programs run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.lab.traces import read_trace

ROWS = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]},
    {"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [1, 2, 4]},
]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *(str(a) for a in arguments)])


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_stats_for_people(trace: Path) -> None:
    """One line a figure, shares beside the counts."""
    done = run("stats", trace)

    assert 0 == done.exit_code
    assert "2 in 2 sessions" in done.stdout
    assert "1,024, 46.5 % of the prompts" in done.stdout
    assert "produced within 5 s before    1, 100.0 % of them" in done.stdout
    working_set, cache = done.stdout.splitlines()[6:8]
    assert "working set                     1,024 tokens in whole blocks of 512" == working_set
    assert "  a cache of 1 % of it hits     46.5 % of the prompts" == cache


def test_stats_for_programs(trace: Path) -> None:
    """One object with every figure."""
    found = json.loads(run("stats", trace, "--json").stdout)

    assert (2, 1024, 1024) == (found["requests"], found["ideal_hit_tokens"], found["working_set_tokens"])
    assert {"1": 0, "5": 1, "30": 1, "120": 1} == found["produced_within"]


def test_stats_say_where_nothing_is_known_of_reuse(tmp_path: Path) -> None:
    """A trace of lengths is not a trace without reuse."""
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,9,1\n")

    assert "nothing is known to return" in run("stats", tmp_path / "a.csv").stdout


def test_convert(trace: Path, tmp_path: Path) -> None:
    """The same requests in our own format, the first ones if so wanted, and sessions at another pace."""
    out = tmp_path / "own.jsonl"

    assert f"2 requests written to {out}\n" == run("convert", trace, out).stdout
    assert ROWS[1]["hash_ids"] == list(list(read_trace(out))[1].blocks)
    assert f"1 requests written to {out}\n" == run("convert", trace, out, "--requests", 1).stdout
    run("convert", trace, out, "--session-every", 0.25)
    assert [0, 250] == [request.arrival_ms for request in read_trace(out)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stats", "{t}", "--format", "azure"], "3 columns"),
        (["stats", "{t}", "--format", "csv"], "--format csv: expected one of mooncake, agentic"),
        (["stats", "{t}.none"], "expected a readable file"),
        (["convert", "{t}", "{t}"], "expected another file"),
        (["convert", "{t}", "{t}.zst"], "zstd is read, not written"),
    ],
)
def test_bad_input_is_one_line(trace: Path, arguments: list[str], told: str) -> None:
    """What cannot be used ends with 2 and says what was expected."""
    done = run(*(argument.replace("{t}", str(trace)) for argument in arguments))

    assert 2 == done.exit_code
    assert told in done.stderr
    assert 1 == done.stderr.count("\n")


def test_a_trace_that_is_shipped_goes_by_its_name(tmp_path: Path) -> None:
    """Nobody has to know where it lies; a name that is none is a file that is missing."""
    out = tmp_path / "own.jsonl"

    assert "5 in 5 sessions" in run("stats", "conversation", "--requests", 5).stdout
    assert "5 requests written" in run("convert", "miniswe", out, "--requests", 5).stdout
    assert "conversations: expected a readable file" in run("stats", "conversations").stderr
