"""What the checkout shows to people, and what an installation shows to Python."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CARD = ("specs", "machines", "cache", "kernels", "lifecycle")
TRACE = "stagehold/lab/data/mooncake/conversation_trace.jsonl.gz"
SHIPPED = (
    TRACE,
    "stagehold/lab/data/mooncake/synthetic_trace.jsonl.gz",
    "stagehold/lab/data/agentic/sessions.jsonl.gz",
    "stagehold/lab/data/lmcache/miniswe_smollm2_blk16.jsonl.gz",
    "stagehold/lab/data/miniswe/sessions.jsonl.gz",
)


def wheel_names(built: Path) -> list[str]:
    (wheel,) = built.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


@pytest.mark.parametrize("wing", CARD)
def test_a_root_link_leads_to_its_wing(wing: str) -> None:
    """Each of the five folders of the design card is a relative link to the wing of that name."""
    link = ROOT / wing

    assert link.is_symlink()
    assert f"src/stagehold/{wing}" == str(link.readlink())
    assert (ROOT / "src" / "stagehold" / wing).resolve() == link.resolve()
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("wing", CARD)
def test_no_root_link_can_be_imported(wing: str) -> None:
    """From the checkout's root, the bare name of a wing is not found in the checkout."""
    probe = (
        "import importlib.util; s = importlib.util.find_spec('" + wing + "');"
        "print([] if s is None else [s.origin, *(s.submodule_search_locations or [])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )

    assert str(ROOT) not in done.stdout


def test_the_wheel_installs_only_the_package(built: Path) -> None:
    """Nothing top-level but `stagehold` and its metadata."""
    top = {name.split("/")[0] for name in wheel_names(built)}

    assert {"stagehold"} == {name for name in top if not name.endswith(".dist-info")}
    assert 2 == len(top)


def test_the_wheel_is_whole(built: Path) -> None:
    """Every module, the type marker, what others made and its licences are inside, each once."""
    names = wheel_names(built)
    package = ROOT / "src" / "stagehold"
    modules = {p.relative_to(package.parent).as_posix() for p in package.rglob("*.py")}

    assert len(names) == len(set(names))
    assert modules <= set(names)
    assert {"stagehold/py.typed", *(f"{file.rsplit('/', 1)[0]}/LICENSE" for file in SHIPPED), *SHIPPED} <= set(names)


def test_the_sdist_follows_no_link(built: Path) -> None:
    """The source archive holds the package once, under `src`, and none of the root links."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        paths = [member.name.split("/", 1)[1] for member in tar.getmembers() if "/" in member.name]
    top = {path.split("/")[0] for path in paths}

    assert not top & set(CARD)
    assert {"src", "pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= top
    assert {"stagehold"} == {path.split("/")[1] for path in paths if path.startswith("src/")}
    assert f"src/{TRACE}" in paths


def test_the_pin_of_torch_is_spelt_out() -> None:
    """The set-up takes torch by one exact version, from the one file that names it."""
    (pin,) = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch")]

    assert pin == "torch==2.13.0"
    assert "grep '^torch==' constraints.txt" in (ROOT / "Makefile").read_text()
