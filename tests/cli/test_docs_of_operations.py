"""What docs/operations.md tells people to type, to write and to ask for is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.operate.measures import MEASURES
from stagehold.operate.metrics import exposed

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "operations.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the file of the page of options, with its store in a folder of this test's own."""
    monkeypatch.chdir(tmp_path)
    (options,) = blocks("toml", (DOCS / "configuration.md").read_text(encoding="utf-8"))
    (tmp_path / "stagehold.toml").write_text(options.replace("/var/cache", str(tmp_path / "a")))
    (commands,) = blocks("sh")
    for line in commands.replace("/var/cache", str(tmp_path / "b")).splitlines():
        program, *words = shlex.split(line)
        assert program == "stagehold"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}"


def test_the_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """And says where it serves."""
    (program,) = blocks("python")
    exec(compile(program, "operations.md", "exec"), {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_every_metric_of_the_page_exists() -> None:
    """By its exposed name."""
    names = set(re.findall(r"stagehold_\w+", TEXT))
    assert len(names) > 5
    assert names <= {exposed(measure) for measure in MEASURES}
