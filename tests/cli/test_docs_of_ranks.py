"""What docs/ranks.md tells people to type and to write is typed and written here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold import EngineConfig
from stagehold.cli.main import app
from stagehold.lifecycle.facts import TAIL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ranks.md"

AS_PROCESSES = """
if __name__ == "__main__":
    import sys
    from multiprocessing import get_context
    from my_ranks import serve

    with get_context("spawn").Pool(2) as pool:
        digests = pool.starmap(serve, [(rank, 2, place.port, sys.argv[1]) for rank in range(2)])
    print(len(set(digests)))
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    table, report, difference, bench = answers
    assert "ranks: 2, processes; " in table
    assert (4, 0, 0) == tuple(orjson.loads(report)[name] for name in ("ranks", "differing_ticks", "wrong_bytes"))
    assert difference == ""
    assert [2] == [row["ranks"] for row in orjson.loads(bench)["rows"]]


def test_the_program_of_the_page_runs_on_two_ranks(tmp_path: Path) -> None:
    """As two processes on one folder; they end with one digest."""
    (program,) = blocks("python")
    (tmp_path / "my_ranks.py").write_text(program.partition("\n\nplace = ")[0] + "\n")
    (tmp_path / "start.py").write_text(
        "from stagehold import MeetingPlace\n\nplace = " + program.partition("\n\nplace = ")[2] + AS_PROCESSES
    )
    done = subprocess.run(
        [sys.executable, "start.py", str(tmp_path / "store")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": ""},  # which these checks set, and people who start a program do not
        check=False,
        capture_output=True,
        text=True,
    )
    assert (0, "1\n") == (done.returncode, done.stdout), done.stderr


def test_the_length_that_the_page_names_is_the_default_one() -> None:
    """794 numbers."""
    config = EngineConfig(device_pages=8, staging_pages=8, largest_request_tokens=64)
    assert f"{3 * config.operation_window + TAIL} numbers by default" in PAGE.read_text(encoding="utf-8")
