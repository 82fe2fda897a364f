"""What docs/defaults.md tells people to type is typed here, with fewer requests and one value of each list."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "defaults.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def small(words: list[str]) -> list[str]:
    """The same command over four requests, with the last value of each list."""
    found = [word.rpartition(",")[2] for word in words]
    found[found.index("--requests") + 1] = "4"
    return found


@pytest.mark.parametrize("command", [line for block in BLOCKS for line in block.splitlines()])
def test_a_command_of_the_page_runs(command: str, tmp_path: Path) -> None:
    """It is a sweep, and its cell has no fault."""
    program, *words = shlex.split(command)
    assert ("stagehold", "sweep") == (program, words[0])
    done = CliRunner().invoke(app, [*small(words), "--json", "--out", str(tmp_path / "cells.jsonl")])
    assert 0 == done.exit_code, done.output
    (record,) = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [] == record["faults"]
    assert record["requests"] == 4


def test_every_section_has_its_table_and_its_commands() -> None:
    """One of each under every heading."""
    tables = re.findall(r"^\|(?: *-+:? *\|)+$", PAGE, re.MULTILINE)
    assert 5 == PAGE.count("\n## ") == len(BLOCKS) == len(tables)
