"""Which declared rows a test run took: counted over the engines that it drove, and nothing else.

Owns the count, and the list of rows that no run of one rank can take, each with its reason. It judges no test and
changes no engine: an engine that closes is asked for its own figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import wraps

from stagehold.cache.residency import Residency
from stagehold.lifecycle.engine import Engine
from stagehold.lifecycle.stats import Stats
from stagehold.machines import MACHINES
from stagehold.machines.labels import row_name
from stagehold.specs.declare import ANY, Kind
from stagehold.specs.outcomes import Agreed
from stagehold.specs.residency import RESIDENCY, ResidencyState
from stagehold.specs.tick import TICK

UNREACHABLE: Mapping[str, str] = {
    "write.offered.drop": "a passing state: the offer that it is born with is worked off before any decree",
}
"""Rows that the suite cannot take, with the reason; at most twelve, and none of them may turn out to be taken."""

MOST_UNREACHABLE = 12


def all_rows() -> list[str]:
    """Every declared row of the seven machines."""
    return [row_name(spec, row) for spec in MACHINES for row in spec.rows]


def _declared() -> dict[str, str]:
    """From the name of a row written out for one state, as `Stats` has it, to that of the row as declared."""
    declared = {row_name(spec, row): row_name(spec, row) for spec in MACHINES for row in spec.expanded()}
    for spec in MACHINES:
        for row in (row for row in spec.rows if row.source == ANY):
            for state in (state for state in spec.states if state.kind is not Kind.TERMINAL):
                declared[row_name(spec, row.model_copy(update={"source": state.name}))] = row_name(spec, row)
    return declared


DECLARED = _declared()

PASS = [
    row_name(TICK, row)
    for row in TICK.rows
    if row.source != ANY and row.event != "timeout" and row.outcome in (None, Agreed.SAME)
]
"""What every tick that comes to its end has stepped; these rows leave no record."""


class RowsTaken:
    """`counts`: how often each declared row was taken by what happened while `listening`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, stats: Stats) -> None:
        """Enter the figures of an engine that has ended."""
        for name, count in stats.rows_taken.items():
            self.counts[DECLARED[name]] += count
        self.counts.update(dict.fromkeys(PASS, stats.ticks))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Enter every engine that is closed within the block, and every move of a page that a book asserts."""
        close, step = Engine.close, Residency.step

        @wraps(close)
        def closed(engine: Engine) -> None:
            was_open = not engine._closed  # noqa: SLF001 - a second close says nothing new
            close(engine)
            if was_open:
                self.add(engine.stats())

        def stepped(book: Residency, key: bytes, component: str, event: str, outcome: IntEnum | None = None) -> None:
            place = book.of(key, component) or ResidencyState.UNBORN
            step(book, key, component, event, outcome)
            self.counts[_residency_row(place, event, outcome)] += 1

        Engine.close, Residency.step = closed, stepped  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Engine.close, Residency.step = close, step  # type: ignore[method-assign]

    def untaken(self) -> list[str]:
        """Rows that were not taken and are not listed as unreachable, in order of declaration."""
        return [name for name in all_rows() if not self.counts[name] and name not in UNREACHABLE]

    def reached(self) -> list[str]:
        """Rows that are listed as unreachable and were taken all the same: their reason has gone."""
        return [name for name in UNREACHABLE if self.counts[name]]


def _residency_row(place: IntEnum, event: str, outcome: IntEnum | None) -> str:
    name = f"{RESIDENCY.name}.{place.name.lower()}.{event}"
    return DECLARED[f"{name}.{outcome.name}" if outcome is not None else name]
