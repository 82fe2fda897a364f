"""What README tells people to type is typed here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN_ELSEWHERE = {  # half a minute and more: once is enough
    "stagehold machines check": "tests/machines/test_explorer.py",
    "stagehold demo": "tests/lab/demo/test_demo_real.py",
}
MAKE_SMALL = ["DEMO=--random --share 0.05", "REQUESTS=12", "CACHE_REQUESTS=8"]  # `make run` itself, with fewer requests


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands(program: str) -> list[str]:
    """In the order of README, those in running text last."""
    fenced = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    inline = re.findall(r"`((?:make|stagehold) [^`]+)`", README)
    return [c for c in dict.fromkeys([*fenced, *inline]) if c.split()[0] == program]


def run(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        check=False,
        cwd=where,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def make(target: str, *options: str) -> list[str]:
    """The recipe of a target with the interpreter of these tests in place of the checkout's own."""
    bin_folder = Path(sys.executable).parent
    ready = f"{bin_folder.parent}/.ready"
    return ["make", "-C", str(ROOT), "-o", ready, f"VENV={bin_folder.parent}", target, *options]


def test_the_commands_of_readme_work(tmp_path: Path) -> None:
    """One after another in an empty folder: each ends with 0 and prints something, JSON where it says so."""
    for command in commands("stagehold"):
        if command in RUN_ELSEWHERE:
            assert (ROOT / RUN_ELSEWHERE[command]).is_file()
            continue
        done = run(shlex.split(command), tmp_path)

        assert 0 == done.returncode, f"{command}: {done.stderr}"
        assert done.stdout, command
        if "--json" in command:
            json.loads(done.stdout)


def test_make_run_is_the_main_job() -> None:
    """The real recipe, small: the demo's table, then both modes' replays."""
    done = run(make("run", *MAKE_SMALL), ROOT)

    assert 0 == done.returncode, done.stderr
    assert "answers                        equal in all passes" in done.stdout
    assert "12 requests, buffer_only" in done.stdout
    assert "8 requests, cache" in done.stdout


@pytest.mark.parametrize("command", commands("make"))
def test_a_target_of_readme_exists(command: str) -> None:
    """Make knows every target that README names; `make test` is what runs this."""
    assert 0 == run(make(command.split()[1], "--dry-run"), ROOT).returncode


def test_every_command_of_readme_is_seen() -> None:
    """The two commands of a fresh machine are found, and every line of a shell block is one of ours."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]

    assert {"make run", "make test", "make setup"} <= set(commands("make"))
    assert all(line in commands("make") + commands("stagehold") for line in lines)


@pytest.mark.parametrize("example", blocks("python"))
def test_an_example_of_readme_runs(example: str, tmp_path: Path) -> None:
    """The Python in README runs as it stands, under pytest where it is tests."""
    file = tmp_path / "test_example.py"
    file.write_text(example, encoding="utf-8")
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if "\ndef test_" in example else []
    done = run([sys.executable, "-W", "error", *runner, str(file)], tmp_path)

    assert 0 == done.returncode, done.stdout + done.stderr
