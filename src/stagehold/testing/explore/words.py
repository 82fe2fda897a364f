"""How the operations in flight go on until the next poll, as `tick` is told: a word for each, a letter for each rank.

Owns the letters, what a word costs, and how a letter is made true on one rank.
"""

from __future__ import annotations

from stagehold.lifecycle.core import Core
from stagehold.testing.explore.broken import Broken
from stagehold.testing.explore.chosen import ChosenCopies, ChosenStore, End
from stagehold.testing.explore.small import Budget

LETTERS = {"F": End.FLIES, "T": End.TRUE, "P": End.PART, "S": End.SHORT, "X": End.FAILED}
"""How one rank's share of an operation goes on, as `tick` is told: flies, as it should, in part, short, failed."""

SAID = "-"
"""The rank has said already that the operation is over."""


def faults(words: tuple[str, ...]) -> int:
    """How many operations end badly."""
    return sum("S" in word or "X" in word for word in words)


def lags(words: tuple[str, ...]) -> int:
    """How many operations end on one rank and fly on, on the other, or bring a page and fly on."""
    return sum("P" in word or set(word) == {"F", "T"} for word in words)


def late(words: tuple[str, ...]) -> int:
    """How many operations fly on, on all ranks where they have not ended."""
    return sum(set(word) <= {"F", SAID} and "F" in word for word in words)


def spent(budget: Budget, words: tuple[str, ...]) -> Budget:
    """What is left after a tick."""
    return budget.spend("fault", faults(words)).spend("lag", lags(words)).spend("late", late(words))


def go_on(core: Core, number: int, end: End) -> None:
    """One operation goes on, on one rank."""
    assert isinstance(core.copies, ChosenCopies), "a small world has no other copies"
    if number in core.copies.flying:
        if end is not End.FLIES:
            core.copies.end(number)
        return
    for store in (core.store, *core.former):
        if isinstance(store, ChosenStore) and number in store.asked:
            store.go_on(number, end)
            return
    raise Broken(f"nobody has been asked for operation {number}")
