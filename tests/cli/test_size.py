"""`stagehold size`, as people and programs run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app

SMALL = ("--trace", "miniswe", "--requests", 12, "--users", 6, "--device-pages", 300)
GRID = ("--host-gb", "1-2", "--store-gbps", "1-2")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["size", *(str(a) for a in arguments)])


def test_an_answer_a_chart_and_a_page(tmp_path: Path) -> None:
    """For people a paragraph, a chart and what it rests on; for programs one object; and simulations are kept."""
    cells, page = tmp_path / "cells.jsonl", tmp_path / "size.html"
    asked = (*SMALL, *GRID, "--within", "60%", "--judge", "hits", "--cells", cells)
    done = run(*asked, "--out", page)
    kept = cells.read_bytes()
    found = json.loads(run(*asked, "--json").stdout)

    assert 0 == done.exit_code, done.output
    assert found["paragraph"].split() == done.stdout.partition("\n\n")[0].split()
    assert "by GB of host memory (rows)" in done.stdout
    assert "The trace: the first 12 requests of miniswe" in done.stdout
    assert done.stdout.endswith(f"page {page}\n")
    assert kept == cells.read_bytes()
    assert len(found["runs"]) == kept.count(b"\n")
    assert found["answer"]["good_enough"]
    assert 0.4 <= found["answer"]["hits_of_ideal"]
    assert found["paragraph"].split(". ")[0] in page.read_text()


def test_an_ideal_out_of_reach_ends_with_1() -> None:
    """The answer is told all the same, against what is in reach."""
    more = (*SMALL[:2], "--requests", 40, "--users", 8, "--device-pages", 300)
    done = run(*more, "--host-gb", "0.1", "--store-gbps", "0.01", "--within", "1")

    assert 1 == done.exit_code
    assert done.stdout.startswith("No pair comes within 1 % of what a cache that never forgets hits")
    assert "will do:" in " ".join(done.stdout.split())
    assert "stagehold: the ideal is out of reach" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--within", "two"], "--within two: expected per cent below 100"),
        (["--within", "100%"], "--within 100%: expected per cent below 100"),
        (["--judge", "feeling"], "--judge feeling: expected one of hits, ttft, both"),
        (["--host-gb", "8-4"], "--host-gb 8-4: expected a size such as 64, or a range such as 4-512"),
        (["--model", "gpt"], "--model gpt: expected 'smollm2-135m'"),
        (["--acelerator", "h100"], "--acelerator: expected --accelerator"),
        (["--staging-pages", "9"], "--host-gb: expected without --staging-pages"),
        (["--trace", "{t}", "--out", "{t}"], "expected another file than"),
        (["--trace", "{t}", "--cells", "{t}"], "--cells {t}: expected another file than"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    """Exit status 2, before anything is simulated."""
    path = tmp_path / "t"
    path.write_text("\n")
    done = run(*(argument.replace("{t}", str(path)) for argument in arguments))

    assert 2 == done.exit_code, done.output
    assert told.replace("{t}", str(path)) in done.stderr
    assert 1 == done.stderr.count("\n")
