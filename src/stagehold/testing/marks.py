"""Marks that a run must reach: states, rows, reasons. A run that never meets a race proves nothing about it.

Owns the list of everything that can be marked, from the declarations, and the rows that no run can reach, each with
its reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stagehold.lifecycle.stats import Stats
from stagehold.machines import rows_of
from stagehold.specs.attachment import ATTACHMENT
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Loss
from stagehold.specs.request import REQUEST
from stagehold.specs.store import STORE
from stagehold.specs.write import WRITE

MARKED = (REQUEST, HOLD, WRITE, STORE, ATTACHMENT)
"""Residency and tick leave no records of their own in an ordinary pass."""


@dataclass(slots=True)
class Marks:
    """What was reached, and how often."""

    states: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def note(self, what: str) -> None:
        """Something that leaves no row: an answer to the scheduler."""
        self.notes[what] += 1

    def add(self, stats: Stats) -> None:
        """Take over the figures of an engine that has ended."""
        self.states.update(stats.state_entries)
        self.rows.update(stats.rows_taken)
        self.losses.update(stats.losses)
        self.notes.update({f"thrown.{reason}": amount.pages for reason, amount in stats.thrown.items() if amount.pages})

    def update(self, other: Marks) -> None:
        """Take over the marks of another run."""
        self.states.update(other.states)
        self.rows.update(other.rows)
        self.losses.update(other.losses)
        self.notes.update(other.notes)


def all_states() -> list[str]:
    """Every state of the marked machines, as `machine.state`."""
    return [f"{spec.name}.{state.name.name.lower()}" for spec in MARKED for state in spec.states]


def all_rows() -> list[str]:
    """Every row of the marked machines, as `Stats.rows_taken` names it."""
    return [name for spec in MARKED for name in _rows(spec)]


def _rows(spec: MachineSpec) -> list[str]:
    names = []
    for row in rows_of(spec):
        assert not isinstance(row.source, str)
        outcome = f".{row.outcome.name}" if row.outcome is not None else ""
        names.append(f"{spec.name}.{row.source.name.lower()}.{row.event}{outcome}")
    return names


def all_losses() -> list[str]:
    """Every end of a token that was queried and not spliced."""
    return [loss.name.lower() for loss in Loss]
