"""The declared rows, looked up by (state, event, outcome).

Everything that a machine does in the explorer comes from here, hence from `stagehold.specs`: there is no second
copy of the tables. This module interprets no effect; it binds each row to the rule that stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from stagehold.machines.explorer.board import DEFERS, ISSUES, TRIES, Board
from stagehold.specs.declare import Kind, MachineSpec, Row
from stagehold.specs.hold import HOLD
from stagehold.specs.request import REQUEST
from stagehold.specs.store import STORE
from stagehold.specs.worlds import World
from stagehold.specs.write import WRITE

DECLARED: Mapping[str, MachineSpec] = {spec.name: spec for spec in (REQUEST, HOLD, WRITE, STORE)}
"""The machines of the product."""

QUERY, CLAIM, LOCK, SLOTS, STAGING, PIN, IO, BACKLOG = (1 << bit for bit in range(8))
PROBE = 1  # the breaker owns nothing else
RESOURCES = {
    "query": QUERY, "claim": CLAIM, "lock": LOCK, "slots": SLOTS,
    "staging": STAGING, "pin": PIN, "io": IO, "backlog": BACKLOG, "probe": PROBE,
}  # fmt: skip
"""Resource classes as bits of one byte: a set of resources is one number on the board."""

COUNTERS = {"issues": ISSUES, "defers": DEFERS, "tries": TRIES}
"""Where the counters of the machines stand in their instance."""

Rule = Callable[[Board, int, "RowFacts"], None]
"""What a row's effect, or the end of its instance, does to the board at a place."""


@dataclass(frozen=True, slots=True)
class RowFacts:
    """One declared row in the form that a step needs."""

    number: int
    text: str
    event: str
    outcome: IntEnum | None
    target: int
    takes: int
    releases: int
    counter: int | None
    limit: int
    clocked: bool
    effect: Rule | None
    settle: Rule | None


@dataclass(frozen=True, slots=True)
class Table:
    """One machine: its rows by (state, event, outcome), and what its states own and wait for."""

    name: str
    rows: Mapping[tuple[int, str, IntEnum | None], RowFacts]
    owns: Mapping[int, int]
    passing: frozenset[int]
    waiting: frozenset[int]
    deadlines: Mapping[int, str]
    state_names: Mapping[int, str]


def resource_set(names: tuple[str, ...]) -> int:
    """The resources `names` as bits; ValueError for one that the explorer does not know."""
    bits = 0
    for name in names:
        if name not in RESOURCES:
            raise ValueError(f"resource {name!r} is unknown to the explorer; add it to RESOURCES in tables.py")
        bits |= RESOURCES[name]
    return bits


def row_text(machine: str, row: Row) -> str:
    """A row in words: `hold: fetching, cut HOPELESS -> draining`."""
    assert isinstance(row.source, IntEnum), "expanded rows have one source"
    outcome = f" {row.outcome.name}" if row.outcome is not None else ""
    return f"{machine}: {row.source.name.lower()}, {row.event}{outcome} -> {row.target.name.lower()}"


def counter_limits(world: World) -> dict[str, int]:
    """The limit of each counter in `world`."""
    return {"issues": world.issue_limit, "defers": world.defer_limit, "tries": world.tries}


class Binder:
    """Compiles a declaration; `effect` and `settle` say which rule stands for a row."""

    def __init__(
        self,
        world: World,
        effect: Callable[[str, Row], Rule | None],
        settle: Callable[[str, Kind, int], Rule | None],
    ) -> None:
        self.limits = counter_limits(world)
        self.effect = effect
        self.settle = settle
        self.texts: list[str] = []

    def bind(self, spec: MachineSpec) -> Table:
        """`spec` as a table whose rows carry their rules."""
        kinds = {int(state.name): state.kind for state in spec.states}
        rows = {}
        for row in spec.expanded():
            assert isinstance(row.source, IntEnum), "expanded rows have one source"
            kind = kinds[int(row.target)]
            rows[(int(row.source), row.event, row.outcome)] = self.facts(spec.name, row, kind)
        return Table(
            name=spec.name,
            rows=rows,
            owns={int(state.name): resource_set(state.owns) for state in spec.states},
            passing=frozenset(state for state, kind in kinds.items() if kind is Kind.PASSING),
            waiting=frozenset(state for state, kind in kinds.items() if kind is Kind.WAITING),
            deadlines={int(state.name): state.deadline.event for state in spec.states if state.deadline},
            state_names={int(state.name): state.name.name.lower() for state in spec.states},
        )

    def facts(self, machine: str, row: Row, kind: Kind) -> RowFacts:
        """`row` of `machine`, whose target has `kind`."""
        self.texts.append(row_text(machine, row))
        return RowFacts(
            number=len(self.texts) - 1,
            text=self.texts[-1],
            event=row.event,
            outcome=row.outcome,
            target=int(row.target),
            takes=resource_set(row.takes),
            releases=resource_set(row.releases),
            counter=COUNTERS[row.counts] if row.counts else None,
            limit=self.limits[row.counts] if row.counts else 0,
            clocked=row.clock is not None,
            effect=self.effect(machine, row),
            settle=self.settle(machine, kind, int(row.target)),
        )
