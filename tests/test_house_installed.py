"""What an installed wheel does where there is no checkout: only what it declares is there, and nothing of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUICK_SECONDS = 60.0
IMPORT_SECONDS = 0.5
FACE_AND_TORCH = """
import json, sys
import stagehold
alone = sorted(sys.modules)
from stagehold import *
print(json.dumps([stagehold.__file__, alone, sorted(sys.modules)]))
"""


def needed() -> list[str]:
    """Distributions that the package needs without any extra."""
    spec = spec_from_file_location("pins", ROOT / "tests" / "pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.needed())


def lend(name: str, packages: Path) -> None:
    """Link an installed distribution into another environment: what lies on top of it, and its metadata."""
    found = distribution(name)
    tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    for top in sorted(tops):
        (packages / top).symlink_to(Path(str(found.locate_file(top))))


def environment(folder: Path, built: Path) -> Path:
    """A new environment with the wheel, its metadata's requirements and nothing else; returns its programs' folder."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in needed():
        lend(name, packages)
    (wheel,) = built.glob("*.whl")
    python = str(folder / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bin"


@pytest.fixture(name="programs", scope="module")
def _programs(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    return environment(tmp_path_factory.mktemp("installed") / "env", built)


def run(programs: Path, where: Path, *command: str, seconds: float = QUICK_SECONDS) -> subprocess.CompletedProcess[str]:
    """In an empty folder, with nothing of this process's environment."""
    where.mkdir(exist_ok=True)
    bare = {"PATH": f"{programs}{os.pathsep}{os.defpath}", "HOME": str(where), "LANG": "C.UTF-8"}
    return subprocess.run(command, check=False, cwd=where, env=bare, capture_output=True, text=True, timeout=seconds)


def quick_start() -> list[str]:
    """The commands that README tells to begin with, that of the installation first."""
    found = re.search(r"^```console\n((?:\$ .*\n)+)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return re.findall(r"^\$ (.*)$", found[1], re.MULTILINE)


def example() -> str:
    """The first Python of README: a scheduler's calls."""
    found = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1]


def test_the_quick_start_of_readme_works_after_installation(programs: Path, tmp_path: Path) -> None:
    """All commands behind the installation, and the first example, in one minute."""
    install, *commands = quick_start()
    assert "pip install ." == install
    assert commands
    start = time.monotonic()
    for command in [*(command.split() for command in commands), ["python", "-W", "error", "-c", example()]]:
        done = run(programs, tmp_path / "empty", *command)
        assert 0 == done.returncode, done.stdout + done.stderr
    assert time.monotonic() - start < QUICK_SECONDS


def test_nothing_but_the_wheel_is_used_and_torch_waits(programs: Path, tmp_path: Path) -> None:
    """The module is the environment's; the whole public face is there without torch, numpy waits for its first name."""
    done = run(programs, tmp_path, "python", "-W", "error", "-c", FACE_AND_TORCH)
    assert 0 == done.returncode, done.stderr
    file, alone, face = json.loads(done.stdout)

    assert Path(file).is_relative_to(programs.parent)
    assert not {"torch", "numpy", "pydantic"} & set(alone)
    assert {"stagehold.lifecycle.engine", "stagehold.lifecycle.ranks.torch_group"} <= set(face)
    assert not {"torch", "transformers", "triton"} & set(face)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("store", "check", "s3://bucket?endpoint=http://localhost:1"), "s3"),
        (("store", "check", "valkey://localhost:1"), "valkey"),
        (("store", "check", "mooncake://localhost:1"), "mooncake"),
        (("demo", "--random"), "demo"),
    ],
)
def test_what_needs_an_extra_names_it(programs: Path, tmp_path: Path, words: tuple[str, ...], extra: str) -> None:
    """Without it, one line and exit status 2."""
    done = run(programs, tmp_path, "stagehold", *words)

    assert 2 == done.returncode, done.stdout + done.stderr
    assert f"stagehold[{extra}]" in done.stderr
    assert 1 == len(done.stderr.splitlines())


def times(programs: Path, where: Path, module: str) -> float:
    """Seconds that the import of one module takes in a fresh interpreter, as it says itself: the least of three."""
    found = []
    for _ in range(3):
        done = run(programs, where, "python", "-X", "importtime", "-c", f"import {module}")
        last = re.findall(rf"^import time: +\d+ \| +(\d+) \| {re.escape(module)}$", done.stderr, re.MULTILINE)
        found.append(int(last[-1]) / 1e6)
    return min(found)


def test_the_import_costs_less_than_that_of_numpy(programs: Path, tmp_path: Path) -> None:
    """The package alone, and the engine beside numpy and pydantic, which it stands on."""
    alone, engine = (times(programs, tmp_path, name) for name in ("stagehold", "stagehold.lifecycle.engine"))
    yardstick = times(programs, tmp_path, "numpy")
    stands_on = yardstick + times(programs, tmp_path, "pydantic.main")

    assert alone < min(IMPORT_SECONDS, yardstick), f"{alone:.3f} s, numpy {yardstick:.3f} s"
    assert engine < 6 * stands_on, f"{engine:.3f} s, numpy and pydantic {stands_on:.3f} s"


@pytest.mark.soak
@pytest.mark.parametrize("extra", ["", "valkey", "s3", "trace", "mooncake", "gpu", "demo", "metrics"])
def test_a_new_environment_installs_the_wheel(built: Path, tmp_path: Path, extra: str) -> None:
    """With all it needs from the package index, by the pins, torch first; then the quick start, on each extra."""
    folder = tmp_path / "env"
    venv.create(folder, symlinks=True, with_pip=True)
    (wheel,) = built.glob("*.whl")
    pins = str(ROOT / "constraints.txt")
    wanted = f"stagehold[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    torch = next(line for line in Path(pins).read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))
    for one in (torch, wanted):
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", pins, one]
        subprocess.run(command, check=True, capture_output=True)
    for command in quick_start()[1:]:
        done = run(folder / "bin", tmp_path / "empty", *command.split())
        assert 0 == done.returncode, done.stdout + done.stderr
