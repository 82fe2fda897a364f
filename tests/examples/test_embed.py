"""The small scheduler of the examples, and the page that explains the calls it makes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from stagehold import Engine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "embed.py"
PAGE = ROOT / "docs" / "embedding.md"
INSIDE = {"page_slots", "component_bytes", "device_bytes"}


def run(folder: Path) -> list[str]:
    """What the example says, as a reader runs it."""
    done = subprocess.run([sys.executable, EXAMPLE, folder], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()


def test_the_second_run_finds_what_the_first_one_stored(tmp_path: Path) -> None:
    """All whole pages but the one that must be computed."""
    first, second = run(tmp_path / "pages"), run(tmp_path / "pages")
    assert "request 0: 0 of 1040 tokens were reused" == first[0]
    assert [f"request {n}: 1024 of 1040 tokens were reused" for n in range(4)] == second


def test_it_is_as_short_as_it_says() -> None:
    """Forty lines of code in the function that schedules, comments and docstring aside."""
    body = EXAMPLE.read_text().split("def serve")[1].split("if __name__")[0]
    code = [line for line in body.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 40


def test_the_page_names_every_call_and_no_other() -> None:
    """A call that is added to the face is explained here, or this fails."""
    face = {name for name in dir(Engine) if not name.startswith("_")} - {"attachment", "state_of"}
    table = re.findall(r"^\| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    told = set(re.findall(r"`(\w+)\(", " ".join(table)))
    assert face - INSIDE - {"page_slots"} == told - {"page_slots"}
    assert [] == [name for name in INSIDE if name not in PAGE.read_text()]


def test_its_configuration_is_accepted() -> None:
    """The piece of Python in it, as it stands there."""
    (piece,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(piece, names)
    assert ("window", "state", "config") == tuple(name for name in ("window", "state", "config") if name in names)
