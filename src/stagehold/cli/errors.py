"""The one exception by which a verb says that its input cannot be used, and the refusal that several verbs share."""

from __future__ import annotations

from pathlib import Path


class BadInput(Exception):
    """What is wrong and what was expected, in one line."""


def refuse_overwriting(option: str, target: Path, source: Path | None) -> None:
    """A file that is read must not be the one that is written, under whatever name."""
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise BadInput(f"{option} {target}: expected another file than {source}, which is read")
