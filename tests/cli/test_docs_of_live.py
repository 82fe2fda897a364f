"""What docs/live.md tells people to type and to write is typed and written here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import orjson
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.operate.logs import ALARMS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "live.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path, monkeypatch) -> None:
    """In the order of the page, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("sh")
    answers = []
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "stagehold"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}"
        answers.append(done.stdout)
    assert "waiting longest" in answers[1]
    assert orjson.loads(answers[2])["blocks"] > 0


def test_the_program_of_the_page_runs(capsys) -> None:
    """It prints the tick that the view is of."""
    (program,) = blocks("python")
    exec(compile(program, "live.md", "exec"), {})
    assert "10\n" == capsys.readouterr().out


def test_the_alarms_of_the_page_are_those_there_are() -> None:
    """As many."""
    (listed,) = re.findall(r"^- Alarms: (.*?)\.", TEXT, re.DOTALL | re.MULTILINE)
    assert len(ALARMS) == len(listed.split(","))
