"""Which distributions the package and its extras need, and the file that holds each of them to one version.

`make pins` writes the lower part of constraints.txt anew from what is installed; a test says when that is due.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
MARK = "# All else that the package and its extras need, as `make pins` found it installed:"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)$", re.MULTILINE)


def project() -> tuple[list[str], dict[str, list[str]]]:
    """What pyproject asks for: always, and for each extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table["dependencies"], table["optional-dependencies"]


def needed(*extras: str) -> dict[str, str]:
    """Distributions that `stagehold[extras]` needs on this machine, itself left out, with their installed versions.

    Raises PackageNotFoundError for one that is needed and not there.
    """
    always, optional = project()
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = _wanted([*always, *(line for extra in extras for line in optional[extra])], "")
    while waiting:
        one, extra = waiting.pop()
        if (one, extra) in seen:
            continue
        seen.add((one, extra))
        if one == "stagehold":
            waiting += _wanted(optional.get(extra, ()), "")
            continue
        there = distribution(one)
        found[one] = there.version
        waiting += _wanted(there.requires or (), extra)
    return dict(sorted(found.items()))


def _wanted(lines: Iterable[str], extra: str) -> list[tuple[str, str]]:
    """Distributions and extras of them that requirements ask for, where `extra` is asked for and on this machine."""
    asked = [Requirement(line) for line in lines]
    here = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": extra})]
    return [(canonicalize_name(one.name), more) for one in here for more in ("", *one.extras)]


def pinned(text: str) -> dict[str, str]:
    """Versions by distribution, as a file of constraints has them."""
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


def rewritten(text: str, found: dict[str, str]) -> str:
    """The file with its lower part made anew; what is pinned by hand above the mark is not said again."""
    head = text.partition(MARK)[0].rstrip("\n")
    by_hand = pinned(head)
    lines = [f"{name}=={version}" for name, version in found.items() if name not in by_hand]
    return "\n".join([head, MARK, *lines, ""])


if __name__ == "__main__":
    try:
        FILE.write_text(rewritten(FILE.read_text(encoding="utf-8"), needed(*project()[1])), encoding="utf-8")
    except PackageNotFoundError as error:
        sys.exit(f"pins: {error.name} is needed and not installed: remove .venv/.ready and run `make setup`")
