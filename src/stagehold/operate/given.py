"""What was set in a file and in the environment, as trees of names; nothing is judged but whether it can be read.

Owns the form of both: TOML of a bounded size, variables with our prefix, JSON where a variable stands for a table.
"""

from __future__ import annotations

import json
import os
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PREFIX = "STAGEHOLD_"
DELIMITER = "__"
ENVIRONMENT = "environment"
TABLES = ("limits", "components")
"""Options that hold others; in the environment, their own variable is JSON."""
NO_OPTIONS = frozenset({"TOKEN"})
"""Variables with our prefix that are told to something else: who may look at a live view."""
FILE_BYTES = 1 << 20
"""No configuration is larger."""
LINE_DOTS = 100
"""A name of an option has one, a store's URL some."""


class ConfigurationError(ValueError):
    """A configuration that cannot be used: each line names the option, where it stands, and what to write instead."""


def of_file(file: Path) -> dict[str, Any]:
    """The tables of a TOML file. ConfigurationError where it cannot be read, or is none."""
    try:
        with open(file, "rb", opener=_at_once) as opened:
            os.set_blocking(opened.fileno(), True)
            return _parsed(opened.read(FILE_BYTES + 1))
    except RecursionError as error:
        raise ConfigurationError(f"{file}: expected TOML: nested too deeply") from error
    except ValueError as error:  # of TOML, of UTF-8, of a number with thousands of digits
        raise ConfigurationError(f"{file}: expected TOML: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}; expected a TOML file of options") from error


def _at_once(path: str, flags: int) -> int:
    """A pipe may be a file of options, too; one that nobody writes to is empty, and not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(text: bytes) -> dict[str, Any]:
    """The tables of a file. The parser's memory grows with the square of a dotted name, so long ones never reach it."""
    if len(text) > FILE_BYTES:
        raise ValueError(f"at most {FILE_BYTES:,} bytes, found more")
    if max((line.count(b".") for line in text.splitlines()), default=0) > LINE_DOTS:
        raise ValueError(f"at most {LINE_DOTS} dots in a line, found more")
    return tomllib.loads(text.decode())


def of_environment() -> dict[str, Any]:
    """What the environment sets, as a tree of names; of values, only those that are tables are looked at."""
    found: dict[str, Any] = {}
    for name, value in sorted(os.environ.items()):
        own = name[len(PREFIX) :]
        if not name.upper().startswith(PREFIX) or not value or own.upper() in NO_OPTIONS:
            continue
        place, (*outer, last) = found, own.lower().split(DELIMITER)
        for part in outer:
            inner = place.setdefault(part, {})
            place = inner if isinstance(inner, dict) else {}
        place.setdefault(last, _table(name, value) if own.lower() in TABLES else value)
    return found


def sets_anything() -> bool:
    """Whether the environment has any option."""
    return bool(of_environment())


def _table(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{ENVIRONMENT}: {name}: expected JSON, found {reprlib.repr(value)} ({error})"
        ) from error


def dotted(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Names of all values in a tree, as `limits.fetch_limit`."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"
