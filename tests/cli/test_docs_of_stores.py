"""What docs/stores.md tells people to type and to write is typed and written here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stores.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_every_command_does_what_it_says(tmp_path: Path) -> None:
    """In the order of the page, on a directory of this test's own."""
    (commands,) = blocks("sh")
    answers = []
    for line in commands.replace("/var/cache", str(tmp_path)).splitlines():
        program, *words = shlex.split(line)
        assert program == "stagehold"
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}: {done.output}"
        answers.append(done.stdout)
    table, report, bench, listed, verified, collected = answers
    assert table.startswith("passed  pages come back as they were put\n")
    assert orjson.loads(report)["failed"] == {}
    assert [line.split(":")[0] for line in bench.splitlines()] == ["64 KiB x 16", "1024 KiB x 16"]
    assert orjson.loads(verified) == {"HIT": len(listed.splitlines())}
    assert collected == "0 pages evicted\n"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The example of the page, installed as a package is: a module, and metadata with its entry point."""
    (tmp_path / "my_shelf.py").write_text(blocks("python")[0])
    points = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]
    metadata = tmp_path / "my_shelf-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-shelf\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in named.items()) for group, named in points.items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    return tmp_path


def test_the_example_of_a_scheme_of_ones_own_conforms(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its entry point, checked by the kit, a page of it served by an engine."""
    monkeypatch.setenv("PYTHONPATH", f"{shelf}:{':'.join(sys.path)}")
    command = [str(Path(sys.executable).parent / "stagehold"), "store", "check", "shelf://attic?workers=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout)
    assert found["failed"] == {}
    assert list(found["skipped"]) == ["capacity limits"]


def test_an_option_of_a_scheme_of_ones_own_is_checked_too(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the opener does not know is refused with what it takes."""
    monkeypatch.setenv("PYTHONPATH", f"{shelf}:{':'.join(sys.path)}")
    command = [str(Path(sys.executable).parent / "stagehold"), "store", "check", "shelf://attic?wrokers=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "shelf takes: deadline, workers" in done.stderr
