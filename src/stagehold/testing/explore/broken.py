"""What a search says when it finds something that must never be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Broken(AssertionError):
    """A situation breaks a rule; the message says which, in a sentence."""


def require(holds: object, what: str) -> None:
    """Raise `Broken` with `what` unless it holds."""
    if not holds:
        raise Broken(what)


@contextmanager
def unheard() -> Iterator[None]:
    """Let engines shout at nobody: a search meets the same failing store and the same full backlog very often."""
    log = logging.getLogger("stagehold")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
