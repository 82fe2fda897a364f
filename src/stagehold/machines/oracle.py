"""`transitions` machines from the same rows: an oracle for the compiled steps, a face for tools and teaching.

Owns every use of `transitions`. The oracle answers from that library's own reading of the rows, and the
compiled steps are held against it, cell by cell or beside a live run. It is slow and in no tick.

The library's traps are switched off: no shortcuts from everywhere, no state of its own making, no callbacks
(nothing can raise after the move), no queue (no refusal counts as done), no registered models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

import transitions

from stagehold.machines.compile import (
    Machine,
    Method,
    NotAnOutcome,
    Refused,
    Step,
    Stepper,
    bind,
    instance_class,
    stepper_of,
)
from stagehold.machines.declared import MACHINES, rows_of
from stagehold.machines.generate import arms
from stagehold.machines.journal import Journal
from stagehold.machines.records import rest, tag
from stagehold.specs.declare import MachineSpec, Row
from stagehold.specs.outcomes import Taken


@dataclass(slots=True)
class Token:
    """What an oracle machine moves: nothing but a state name."""

    state: str


class OracleDifference(AssertionError):
    """A compiled step and `transitions` disagree about one (state, event, outcome)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many cells of one machine were compared, and a sentence for each that differed."""

    machine: str
    cells: int
    differences: tuple[str, ...]


def oracle_machine(spec: MachineSpec, machine_class: type[Any] = transitions.Machine) -> Any:
    """A plain `transitions` machine of `spec`, states by name; a decided event takes its outcome as argument.

    `machine_class` may be one of the library's own extensions, for markup or graphs.
    """
    return machine_class(
        model=None,
        states=[state.name.name for state in spec.states],
        transitions=[_transition(row) for row in rows_of(spec)],
        initial=spec.initial.name,
        auto_transitions=False,
        queued=False,
        send_event=False,
        ignore_invalid_triggers=False,
    )


def _transition(row: Row) -> dict[str, Any]:
    assert isinstance(row.source, IntEnum)  # `rows_of` has written out every `ANY`
    plain: dict[str, Any] = {"trigger": row.event, "source": row.source.name, "dest": row.target.name}
    if row.outcome is not None:
        plain["conditions"] = [_answered(row.outcome)]
    return plain


def _answered(outcome: IntEnum) -> Callable[..., bool]:
    """A guard that holds for this outcome; a plain bool, since the library compares guards with True."""

    def guard(answer: object = None) -> bool:
        return answer is outcome

    return guard


class Oracle:
    """Where `transitions` says that a step leads."""

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        self._machine = oracle_machine(spec)
        self._states = type(spec.initial)

    def target(self, source: IntEnum, event: str, outcome: IntEnum | None) -> IntEnum | None:
        """The state after `event`; None where it is refused or no row has this outcome."""
        token = Token(source.name)
        try:
            moved = self._machine.events[event].trigger(token, outcome)
        except transitions.MachineError:
            return None
        return self._states[token.state] if moved else None


class CompiledEvent(transitions.Event):
    """An event of the face: its trigger is the compiled step itself."""

    def __init__(self, name: str, machine: FaceMachine) -> None:
        super().__init__(name, machine)
        self.trigger = machine.steps[name]  # type: ignore[assignment, method-assign]


class FaceMachine(transitions.Machine):
    """The usual `transitions` interface over compiled steps: `face.events["issue"].trigger(m, arg)`.

    States, triggers and transitions can be asked as usual; moving goes through the step that is bound to the
    engine, with its decisions, effects and records.
    """

    event_cls = CompiledEvent

    def __init__(self, stepper: Stepper) -> None:
        self.steps = stepper.steps
        super().__init__(
            model=None,
            states=[state.name for state in stepper.spec.states],
            transitions=[
                {**_transition(row), "source": row.source, "dest": row.target} for row in rows_of(stepper.spec)
            ],
            initial=stepper.spec.initial,
            auto_transitions=False,
        )

    def add_model(self, model: object, initial: object = None) -> NoReturn:  # noqa: ARG002 - theirs
        """Refused: the library would bind a partial per event to each model, and keep all of them alive."""
        raise TypeError(
            f"{model!r} is not registered: instances are slotted and unknown to their machine; "
            "call face.events[name].trigger(m, arg)"
        )


def shadowed(stepper: Stepper) -> Stepper:
    """A stepper that takes each step and then asks the oracle; OracleDifference at the first disagreement."""
    oracle = Oracle(stepper.spec)
    methods = {event: _beside(oracle, event, step) for event, step in stepper.steps.items()}
    return stepper_of(stepper.spec, stepper.source, methods, stepper.birth, stepper.module)


def _beside(oracle: Oracle, event: str, step: Step) -> Method:
    def both(_stepper: Stepper, m: Machine, arg: Any = None) -> IntEnum:
        source = m.state
        try:
            answer = step(m, arg)
        except Refused:
            _agree(oracle, (source, event, None), None)
            raise
        outcome = None if isinstance(answer, Taken) else answer
        _agree(oracle, (source, event, outcome), None if answer is Taken.REFUSED else m.state)
        return answer

    return both


def _agree(oracle: Oracle, cell: tuple[IntEnum, str, IntEnum | None], reached: IntEnum | None) -> None:
    expected = oracle.target(*cell)
    if expected is not reached:
        raise OracleDifference(f"machine {oracle.spec.name!r}, {cell}: step {reached!r}, oracle {expected!r}")


class Probe:
    """Decisions that answer as told, effects and clocks that note their names: what a comparison binds."""

    def __init__(self) -> None:
        self.answer: object = None
        self.seen: list[str] = []

    def decide(self, _m: Machine, _arg: Any) -> object:
        """The answer of every decision."""
        return self.answer

    def arm(self, _m: Machine, deadline: Any) -> None:
        """Note a clock."""
        self.seen.append(f"arm {deadline.limit}")

    def note(self, name: str) -> Callable[[Machine, Any], int]:
        """An effect that notes its name and returns 7, to be found in the record."""

        def effect(_m: Machine, _arg: Any) -> int:
            self.seen.append(name)
            return 7

        return effect


class _Answers:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._probe.decide


class _Notes:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._probe.note(name)


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to ask of a machine: this event, in this state, with this answer of its decision."""

    state: IntEnum
    event: str
    answer: object
    row: int | None


def cells(spec: MachineSpec) -> Iterator[Cell]:
    """Every (state, event, outcome); of a decided pair also an answer that is no member; else one."""
    rows = {(row.source, row.event, row.outcome): index for index, row in enumerate(rows_of(spec))}
    decided = {(asked.state, asked.event): asked.outcomes for asked in spec.decisions}
    for state in spec.states:
        for event in spec.events():
            for answer in (*decided.get((state.name, event), ()), None):
                yield Cell(state.name, event, answer, rows.get((state.name, event, answer)))


def compare(spec: MachineSpec) -> Comparison:
    """Hold compiled steps and face against the oracle and the rows in every cell.

    Compared are the state reached, the answer, the effect called, the counters, the record and the clock.
    """
    probe = Probe()
    journal = Journal(machines=(spec,))
    stepper = bind(spec, decisions=_Answers(probe), effects=_Notes(probe), journal=journal, arm=probe.arm, strict=True)
    oracle = Oracle(spec)
    face = FaceMachine(stepper)
    differences = []
    count = 0
    for cell in cells(spec):
        count += 1
        target = oracle.target(cell.state, cell.event, cell.answer if isinstance(cell.answer, IntEnum) else None)
        wanted = _wanted(spec, cell, target)
        ways: list[tuple[str, Callable[..., Any]]] = [
            ("step", stepper.steps[cell.event]),
            ("face", face.events[cell.event].trigger),
        ]
        for way, step in ways:
            got = _taken(spec, cell, step, probe, journal)
            if got != wanted:
                differences.append(f"{way} {spec.name} {cell}: {got}, expected {wanted}")
    return Comparison(spec.name, count, tuple(differences))


def compare_all(machines: Sequence[MachineSpec] = MACHINES) -> list[Comparison]:
    """`compare` for each machine."""
    return [compare(spec) for spec in machines]


def _wanted(spec: MachineSpec, cell: Cell, target: IntEnum | None) -> tuple[Any, ...]:
    """What a step must leave behind: the oracle's state, and what the row says of the rest."""
    if cell.row is None:
        decided = any(asked.state is cell.state and asked.event == cell.event for asked in spec.decisions)
        stays = cell.state if target is None else target
        return (stays, NotAnOutcome if decided else Refused, [], [0] * len(spec.counters), [])
    row = rows_of(spec)[cell.row]
    answer = row.outcome if row.outcome is not None else Taken.TAKEN
    seen = [] if row.effect is None else [row.effect]
    deadline = spec.state(row.target).deadline
    if deadline is not None and arms(spec, row):
        seen.append(f"arm {deadline.limit}")
    counters = [int(counter == row.counts) for counter in spec.counters]
    return (
        target,
        answer,
        seen,
        counters,
        [tag(3), rest(0, cell.row, detail=7 if row.effect is not None else 0)],
    )


def _taken(spec: MachineSpec, cell: Cell, step: Callable[..., Any], probe: Probe, journal: Journal) -> tuple[Any, ...]:
    """What a step leaves behind on an instance that is put where the cell begins."""
    m = instance_class(spec)()
    m.number, m.tag, m.state, m.data = 3, tag(3), cell.state, None
    for counter in spec.counters:
        setattr(m, counter, 0)
    probe.answer, probe.seen = cell.answer, []
    journal.records.clear()
    answer: Any
    try:
        answer = step(m)
    except (Refused, NotAnOutcome) as refusal:
        answer = type(refusal)
    counters = [getattr(m, counter) for counter in spec.counters]
    return (m.state, answer, probe.seen, counters, list(journal.records))
