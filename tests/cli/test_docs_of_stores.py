"""What docs/stores.md tells people to type and to write is typed and written here."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from stagehold import AttachmentState, Engine, EngineConfig, Namespace, Plan
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
    table, report, shared, bench, listed, verified, collected = answers
    assert table.startswith("passed  pages come back as they were put\n")
    assert orjson.loads(report)["failed"] == {}
    assert "passed  an engine serves the right bytes from it\n" in shared
    assert "failed" not in shared
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
    assert list(found["skipped"]) == ["capacity limits", "a greedy tenant evicts only its own pages"]


def test_an_option_of_a_scheme_of_ones_own_is_checked_too(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the opener does not know is refused with what it takes."""
    monkeypatch.setenv("PYTHONPATH", f"{shelf}:{':'.join(sys.path)}")
    command = [str(Path(sys.executable).parent / "stagehold"), "store", "check", "shelf://attic?wrokers=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "shelf takes: deadline, workers" in done.stderr


def test_the_faults_of_the_page_go_wrong_and_an_engine_gets_on_with_them() -> None:
    """Some writes that were acknowledged are gone, the others are read, and the books balance after every tick."""
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    sizes = EngineConfig(device_pages=64, staging_pages=64, largest_request_tokens=2048, parts=1, page_part_bytes=4096)
    engine = Engine(sizes, store=names["store"], strict=True)
    while engine.attachment is AttachmentState.ATTACHING:
        engine.tick()
    for _ in range(2):
        for request in range(3):
            handle = engine.arrive(f"request {request}", np.full(2000, request), Namespace("m"), 1)
            for _ in range(40):
                engine.tick()
                plan = engine.select(handle, 2000)
                if isinstance(plan, Plan) and (admission := engine.commit(plan)).admitted:
                    break
            if admission.extend_tokens:
                engine.extend(handle, admission.extend_tokens)
            engine.finish(handle)
        engine.drain(200)
        engine.flush()
    engine.close()
    assert names["store"].counts["corrupt"] > 0
    assert engine.stats().spliced > 0
