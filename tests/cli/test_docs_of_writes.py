"""What docs/writes.md tells people to type is typed here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writes.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return "".join(blocks).splitlines()


def typed(line: str, tmp_path: Path, *more: str) -> str:
    program, *words = shlex.split(line)
    assert program == "stagehold"
    done = CliRunner().invoke(app, [*words, "--audit", str(tmp_path / "a.jsonl"), *more])
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.stdout


def figures(table: str, label: str) -> list[int]:
    """The numbers in the row of that label."""
    (row,) = re.findall(rf"^│ +{label} +│(.*)│$", table, re.MULTILINE)
    return [int(cell.replace(",", "")) for cell in row.split("│") if cell.strip().replace(",", "").isdigit()]


@pytest.mark.parametrize("line", commands())
def test_every_command_does_what_it_says(line: str, tmp_path: Path) -> None:
    """As a table for people."""
    table = typed(line, tmp_path)
    if "--modes" in line:
        hits, found = figures(table, "hit tokens"), figures(table, "found in host memory")
        assert hits[0] > 0 < hits[1]
        assert found[0] < found[1]
    elif "--no-store" in line:
        assert figures(table, "from host memory or the store")[0] > 0
    else:
        assert re.search(r"dropped +│ +[\d,]+ │ [\d,]+ puts failed", table)


def test_both_modes_are_one_json_object_for_programs(tmp_path: Path) -> None:
    """A report for each mode, made on equal sizes."""
    (line,) = [line for line in commands() if "--modes" in line]
    reports = orjson.loads(typed(line, tmp_path, "--json", "--requests", "30"))
    assert ["buffer_only", "cache"] == list(reports)
    assert {0} == {report["wrong_bytes"] + report["violations"] for report in reports.values()}
    assert 1 == len({report["prompt_tokens"] for report in reports.values()})
