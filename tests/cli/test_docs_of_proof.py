"""What docs/proof.md tells people to type is typed here, with fewer rounds; long commands are the Makefile's."""

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

from stagehold.cli.main import app
from stagehold.testing.explore import WORLDS, soak

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page; what is printed for the program is what stands there."""
    monkeypatch.chdir(tmp_path)
    for name, less in {"STORM_REQUESTS": 8, "WALK_ACTS": 20, "RULE_EXAMPLES": 1, "EXPLORED": 60}.items():
        monkeypatch.setattr(soak, name, less)
    program, printed = blocks("text")
    Path("program.txt").write_text(program)
    answers = []
    for line in "".join(blocks("sh")).splitlines():
        command, *words = shlex.split(line)
        assert "stagehold" == command
        done = CliRunner().invoke(app, words)
        assert 0 == done.exit_code, f"{line}: {done.output}"
        answers.append(done.stdout)
    shown, walked, searched, soaked = answers
    assert printed == shown
    assert 200 == orjson.loads(walked)["transitions"]
    assert len(WORLDS) == len(orjson.loads(searched)["worlds"])
    assert orjson.loads(soaked)["flat"]


def test_the_long_commands_are_in_the_makefile() -> None:
    """`make soak` and `make mutate` are targets, and what they take are variables of theirs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, variable in re.findall(r"`make (\w+) ([A-Z]+)=", PAGE):
        recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0]

        assert f"$({variable})" in recipe, f"{target} does not use {variable}"


def test_the_worlds_of_the_page_are_searched() -> None:
    """Each row of figures names a world."""
    rows = re.findall(r"^\| ([a-z ]+) \| [\d,]+ \| [\d,]+ \| \d+ \| \d+ \| ", PAGE, re.MULTILINE)

    assert rows
    assert set(rows) <= {world.name for world in WORLDS}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    """The Python in it is a file of tests as it stands there."""
    (piece,) = blocks("python")
    (tmp_path / "test_mine.py").write_text(piece)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "test_mine.py"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout
    assert "4 passed" in done.stdout
