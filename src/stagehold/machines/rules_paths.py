"""What must hold of ways through a machine: reachable, ending, bounded; and the bound itself.

Owns these rules and the computed number of steps; `checks` runs them once all names are known to be good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stagehold.machines.declared import rows_of
from stagehold.machines.findings import Problem, Rule, at_row, wrong_row, wrong_state
from stagehold.machines.generate import arms
from stagehold.machines.rules_states import ABORTS
from stagehold.specs.declare import Declared, Kind, Life, MachineSpec, Row


@dataclass(frozen=True, slots=True)
class StepBound:
    """The most steps that one instance of a finite machine can take.

    `stretch` is the longest run of rows that bounds nothing; each counted row and each repeat on a clock (one
    a tick at most), can start one more. A clock starts at most once, and once more after each counted row.
    """

    stretch: int
    counters: dict[str, int]
    clocks: dict[str, int]

    @property
    def repeats(self) -> int:
        """How often a counted row or a row on a clock can be taken in all."""
        counted = sum(self.counters.values())
        return counted + (1 + counted) * sum(self.clocks.values())

    @property
    def steps(self) -> int:
        """Stretch + (stretch + 1) x repeats."""
        return self.stretch + (self.stretch + 1) * self.repeats


def reached(rows: Iterable[Row], starts: Iterable[IntEnum]) -> set[IntEnum]:
    """All states that can be reached over `rows`, the starts included."""
    ways: dict[IntEnum | str, list[IntEnum]] = {}
    for row in rows:
        ways.setdefault(row.source, []).append(row.target)
    seen = set(starts)
    ends = list(seen)
    while ends:
        for target in ways.get(ends.pop(), []):
            if target not in seen:
                seen.add(target)
                ends.append(target)
    return seen


def reachable(spec: MachineSpec) -> Iterator[Problem]:
    """Every state can be entered."""
    seen = reached(rows_of(spec), [spec.initial, *spec.births])
    for state in spec.states:
        if state.name not in seen:
            yield wrong_state(
                Rule.REACHABLE, spec, state, "is never entered; write a row that leads to it, or remove it"
            )


def ends(spec: MachineSpec) -> Iterator[Problem]:
    """From every state of a finite machine a terminal one can be reached without an abort."""
    if spec.life is not Life.FINITE:
        return
    over = {state.name for state in spec.states if state.kind is Kind.TERMINAL}
    if not over:
        yield Problem(Rule.ENDS, spec.name, "states", "a finite machine has no terminal state; declare one")
    rows = [row for row in rows_of(spec) if row.event not in ABORTS]
    for state in spec.states:
        if not reached(rows, [state.name]) & over:
            yield wrong_state(Rule.ENDS, spec, state, "cannot end but by abort; write a row towards a terminal state")


def home(spec: MachineSpec) -> Iterator[Problem]:
    """A standing machine has a resting state that can be reached from each of its states but the terminal ones."""
    if spec.life is not Life.STANDING:
        return
    living = [state.name for state in spec.states if state.kind is not Kind.TERMINAL]
    common = {state.name for state in spec.states if state.kind is Kind.RESTING}
    for name in living:
        common &= reached(rows_of(spec), [name])
    if not common:
        says = "no resting state can be reached from everywhere; write the rows back to one, the machine's home"
        yield Problem(Rule.HOME, spec.name, "states", says)


def cycle(spec: MachineSpec) -> Iterator[Problem]:
    """Without the rows that count or run on a clock, no cycle of a finite machine remains."""
    if spec.life is not Life.FINITE:
        return
    loop = _loop(_unbounded(spec))
    if loop:
        path = "; ".join(at_row(row).removeprefix("row ") for row in loop)
        says = f"nothing bounds this cycle ({path}); write counts=... or clock=... on one of its rows"
        yield wrong_row(Rule.CYCLE, spec, loop[0], says)


def clock(spec: MachineSpec, machines: Sequence[MachineSpec]) -> Iterator[Problem]:
    """A row on a clock repeats a wait that the clock bounds, its own or its delegate's, never starting it."""
    for row in rows_of(spec):
        if row.clock is None:
            continue
        target = spec.state(row.target)
        bounds = [] if target.deadline is None else [target.deadline.limit]
        for other in machines:
            if other.name == target.delegate:
                bounds += [state.deadline.limit for state in other.states if state.deadline is not None]
        if row.clock not in bounds:
            known = ", ".join(bounds) or "none"
            says = f"clock {row.clock} does not bound {row.target.name.lower()}; write one of: {known}"
            yield wrong_row(Rule.CLOCK, spec, row, says)
        elif arms(spec, row):
            says = f"starts clock {row.clock} anew, so it bounds nothing; count the row instead"
            yield wrong_row(Rule.CLOCK, spec, row, says)


def step_bound(spec: MachineSpec, limits: Declared) -> StepBound | None:
    """The most steps of one instance under `limits`; None for a standing machine."""
    if spec.life is not Life.FINITE:
        return None
    clocks = {row.clock: int(getattr(limits, row.clock)) for row in spec.rows if row.clock is not None}
    counters = {name: int(getattr(limits, limit)) for name, limit in spec.counters.items()}
    return StepBound(_longest(_unbounded(spec), spec), counters, clocks)


def _unbounded(spec: MachineSpec) -> list[Row]:
    return [row for row in rows_of(spec) if row.counts is None and row.clock is None]


def _loop(rows: Sequence[Row]) -> list[Row]:
    """Some cycle over `rows`, in order; empty if there is none. Rows that lead to no cycle are peeled off."""
    left = list(rows)
    while True:
        sources = {row.source for row in left}
        inner = [row for row in left if row.target in sources]
        if len(inner) == len(left):
            break
        left = inner
    if not left:
        return []
    path = [left[0]]
    while path[-1].target not in [row.source for row in path]:
        path.append(next(row for row in left if row.source is path[-1].target))
    start = [row.source for row in path].index(path[-1].target)
    return path[start:]


def _longest(rows: Sequence[Row], spec: MachineSpec) -> int:
    """Rows on the longest way over acyclic `rows`."""
    known: dict[IntEnum, int] = {}

    def below(state: IntEnum) -> int:
        if state not in known:
            known[state] = max((1 + below(row.target) for row in rows if row.source is state), default=0)
        return known[state]

    return max(below(state.name) for state in spec.states)
