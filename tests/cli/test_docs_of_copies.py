"""What docs/copies.md tells people to type and to write is typed and written here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import orjson
from typer.testing import CliRunner

from stagehold.cli.main import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "copies.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says() -> None:
    """A line for each layout, or one object."""
    answers = []
    for line in "".join(blocks("sh")).splitlines():
        program, *words = shlex.split(line)
        assert program == "stagehold"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}"
        answers.append(done.stdout)
    lines, figures = answers
    assert ["like layouts, 1 parts", "across layouts, 32 parts"] == [line.split(":")[0] for line in lines.splitlines()]
    assert 262_144 == orjson.loads(figures)["page_bytes"]


def test_the_example_runs(tmp_path: Path) -> None:
    """As it stands, and what it loads is what it put there."""
    (example,) = blocks("python")
    file = tmp_path / "example.py"
    file.write_text(example + "assert bytes(device.tensor[:, 17].flatten().tolist()) == bytes(range(256)) * 32\n")
    done = subprocess.run([sys.executable, "-W", "error", str(file)], check=False, capture_output=True, text=True)
    assert (0, "") == (done.returncode, done.stderr)


def test_the_page_names_the_limits_of_the_code() -> None:
    """The figures in its table are the constants."""
    from stagehold.kernels.forms import BUFFER_BYTES, LONG_PART_BYTES

    assert f"| {LONG_PART_BYTES >> 10} KiB and more |" in PAGE
    assert f"at most {BUFFER_BYTES >> 20} MiB on the device" in PAGE
