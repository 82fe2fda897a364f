"""What docs/audit.md tells people to type is typed here, and prints what stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagehold.machines.audit import Damage
from stagehold.machines.audit_causes import Verdict

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
LEFT_OUT, DIGEST = "...", "…"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Each command of the page, and what stands below it."""
    told = re.split(r"^\$ ", "".join(blocks("console")), flags=re.MULTILINE)
    return [(one.split("\n", 1)[0], one.split("\n", 1)[1]) for one in told if one]


def pattern(expected: str) -> str:
    """What the page shows as an expression: digests and lines left out may be anything of their kind."""
    text = re.escape(expected).replace(re.escape(DIGEST), "[0-9a-f]{32}")
    text = re.sub(rf"^{re.escape(re.escape(LEFT_OUT))}\\?\n", "(?:.*\n)*?", text, flags=re.MULTILINE)
    return text.replace(re.escape(LEFT_OUT), ".*")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command prints, both streams as a terminal shows them: the page's program first, then all in order."""
    here = tmp_path_factory.mktemp("page")
    (here / "story.py").write_text(blocks("python")[0], encoding="utf-8")
    subprocess.run([sys.executable, "story.py"], cwd=here, check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = {}
    for command, _ in commands():
        done = subprocess.run(
            command, shell=True, cwd=here, env={**os.environ, "PATH": path}, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 1), f"{command}: {done.stdout}"
        printed[command] = done.stdout
    return printed


@pytest.mark.parametrize(("command", "expected"), commands(), ids=[command for command, _ in commands()])
def test_a_command_prints_what_the_page_says(printed: dict[str, str], command: str, expected: str) -> None:
    """To the letter."""
    assert re.fullmatch(pattern(expected), printed[command]), f"{command}\n{printed[command]}"


def test_the_page_shows_every_command() -> None:
    """None of the group is left out."""
    typed = " ".join(command for command, _ in commands())

    assert all(f"stagehold audit {verb} " in typed for verb in ("verify", "explain", "replay", "diff", "stats"))


def test_the_page_names_every_damage_and_verdict() -> None:
    """As the program does, in the same order."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", PAGE, re.MULTILINE)

    assert [(damage.name, damage.value) for damage in Damage] == rows
    assert all(f"`{verdict.name}`" in PAGE for verdict in Verdict)
