"""The one exception by which a verb says that its input cannot be used, and what several verbs refuse or write."""

from __future__ import annotations

from pathlib import Path


class BadInput(Exception):
    """What is wrong and what was expected, in one line."""


def refuse_overwriting(option: str, target: Path, source: Path | None) -> None:
    """A file that is read must not be the one that is written, under whatever name."""
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise BadInput(f"{option} {target}: expected another file than {source}, which is read")


def write_out(target: Path, data: bytes) -> None:
    """Write a file whose folders need not be there; whatever hinders it is said of that file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    except OSError as error:
        raise BadInput(f"{target}: {error.strerror}") from error
