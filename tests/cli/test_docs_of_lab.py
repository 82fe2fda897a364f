"""What docs/lab.md tells people to type is typed here, and its examples and figures are held to."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.lab.stats import trace_stats
from stagehold.lab.traces import SHIPPED, Format, read_trace, shipped_trace
from stagehold.lab.virtual_costs import MODELS, ModelName

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in a folder of this test's own, on the trace that comes with the package."""
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks("sh")).splitlines():
        program, *words = shlex.split(line)
        assert program == "stagehold"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}"
        assert done.stdout, line
        if "--json" in words:
            json.loads(done.stdout)


def test_the_example_of_our_format_is_one(tmp_path: Path) -> None:
    """The lines of the page are a trace, in which the second prompt shares two blocks of the first."""
    (tmp_path / "t.jsonl").write_text(blocks("json")[0])

    assert [3, 4] == [len(request.blocks) for request in read_trace(tmp_path / "t.jsonl")]
    assert 128 == trace_stats(read_trace(tmp_path / "t.jsonl"), tmp_path).ideal_hit_tokens


def test_the_example_of_a_report_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands on the page, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})

    assert "Two passes" in (tmp_path / "report.html").read_text()


def test_every_format_is_told_of() -> None:
    """A reader that is added is added to the page."""
    assert all(f"| `{name}` |" in PAGE for name in Format)


def test_the_traces_that_are_shipped_are_told_of() -> None:
    """Each by its name, with its requests."""
    for name in SHIPPED:
        count = sum(1 for _ in read_trace(shipped_trace(name)))
        assert re.search(rf"^\| `{name}` \| .*\b{count:,}( long)? requests", PAGE, re.MULTILINE), name


def test_the_figures_of_the_page() -> None:
    """As `trace stats` prints them for the shipped trace, and as the models have them."""
    found = trace_stats(read_trace(shipped_trace()), shipped_trace())
    token_bytes = {name: shape.kv_token_bytes for name, shape in MODELS.items()}

    for name, size in token_bytes.items():
        assert re.search(rf"{size:,}( a token)? for `{name}`", PAGE), name
    working_set = found.working_set_tokens * token_bytes[ModelName.LLAMA_3_1_8B]
    assert f"the whole conversation trace is {working_set / 1e12:.1f} TB" in PAGE

    assert "that is 2,273 of 12,030 requests at 120 s and 25 at 5 s" in PAGE
    assert (2_273, 25, 12_030) == (
        found.produced_within[120],
        found.produced_within[5],
        found.requests_with_a_hit,
    )
