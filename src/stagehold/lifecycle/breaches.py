"""What happens when the books are found wrong: a strict engine stops, a service counts, shouts and goes on.

Owns which books are wrong now and which have been told of. It repairs nothing: what is in doubt stays out of
circulation, which costs room and never a wrong byte.
"""

from __future__ import annotations

import logging
from typing import Protocol

from stagehold.lifecycle.books import Violation, check, check_sums
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.errors import InvariantBroken


class OnViolation(Protocol):
    """Who is told that a book is wrong: once for each book, in service only."""

    def __call__(self, tick: int, what: str, *, book: str) -> None:
        """Book `book` was found wrong in `tick`; `what` has both sides of the comparison."""


def shout(tick: int, what: str, *, book: str) -> None:
    """The listener of an engine that was given none: an error in the log of the process."""
    logging.getLogger("stagehold").error("tick %d: %s: %s", tick, book, what)


class Breaches:
    """The look at the books that ends every tick."""

    def __init__(self, on_violation: OnViolation) -> None:
        self._on_violation = on_violation
        self._wrong: set[str] = set()  # books whose sums did not match at the last look
        self._told: set[str] = set()

    def look(self, core: Core) -> int:
        """How many breaches are new. A book that stays wrong is one breach, however long; strict engines raise."""
        if core.ledger.strict:
            for one in check(core):
                raise InvariantBroken(f"tick {core.clock.tick}: {one.book}: {one.what}")
        found = check_sums(core)
        new = [violation for violation in found if violation.book not in self._wrong]
        self._wrong = {violation.book for violation in found}
        new += [Violation("owners", breach.what) for breach in core.ledger.breaches]
        for breach in core.ledger.breaches:
            core.bar(breach.owner)
        core.ledger.breaches.clear()
        for violation in new:
            self._tell(core.clock.tick, violation)
        return len(new)

    def _tell(self, tick: int, violation: Violation) -> None:
        if violation.book not in self._told:
            self._told.add(violation.book)
            self._on_violation(tick, violation.what, book=violation.book)
