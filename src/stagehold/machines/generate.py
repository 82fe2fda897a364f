"""The source text of a machine's steps: one function per event, decisions and effects called in place.

Owns the text only; `compile` runs it. The text is made for reading, too: every branch is one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from stagehold.machines.records import REFUSED_FLAG, REFUSED_ROW
from stagehold.specs.declare import Decision, Kind, MachineSpec, Row

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Variant:
    """What of a step is generated: machine index in records, refusals that raise, records, clocks."""

    index: int = 0
    strict: bool = True
    audited: bool = True
    clocks: bool = True


def arms(spec: MachineSpec, row: Row) -> bool:
    """Whether taking `row` starts the clock of its target.

    It does when the target is entered from another state, and when the row repeats a state on that state's
    own deadline event. It does not when a passing state or a visit goes back to where it was entered from,
    since that clock still runs; from there to anywhere else is a new entry (an offered write, an unfit one).
    """
    deadline = spec.state(row.target).deadline
    if deadline is None:
        return False
    if row.source is row.target:
        return row.event == deadline.event
    return row.target not in _origins(spec, row.source)


def _origins(spec: MachineSpec, source: IntEnum | str) -> set[IntEnum | str]:
    """The lasting states that a passing state or a visit was entered from; none for any other state."""
    transient = {state.name for state in spec.states if state.kind in (Kind.PASSING, Kind.VISIT)}
    seen: set[IntEnum | str] = set()
    open_ends = [source] if source in transient else []
    while open_ends:
        here = open_ends.pop()
        before = {row.source for row in spec.expanded() if row.target is here} - seen
        seen |= before
        open_ends += [state for state in before if state in transient]
    return seen - transient


def wanted(spec: MachineSpec) -> tuple[list[str], list[str]]:
    """Names of decisions and of effects, each once, in order of declaration."""
    decisions = dict.fromkeys(decision.name for decision in spec.decisions)
    effects = dict.fromkeys(row.effect for row in spec.expanded() if row.effect is not None)
    return list(decisions), list(effects)


def answer_name(outcome: IntEnum) -> str:
    """How an outcome is called in the text."""
    return f"{type(outcome).__name__}_{outcome.name}"


def clock_name(state: IntEnum) -> str:
    """How the deadline of a state is called in the text."""
    return f"CLOCK_{state.name}"


def row_name(index: int) -> str:
    """How the record of a row without detail is called in the text."""
    return f"ROW_{index}"


def decision_name(decision: Decision) -> str:
    """How a declared decision is called in the text."""
    return f"DECISION_{decision.state.name}_{decision.event}"


def source_of(spec: MachineSpec, variant: Variant) -> str:
    """The text: function `birth`, methods `on_<event>`; what they name besides is in the module that it becomes."""
    lines = _birth(spec, variant)
    for number, event in enumerate(spec.events()):
        lines += ["", *_step(spec, variant, event, number)]
    return "\n".join(lines) + "\n"


def _indented(lines: list[str]) -> Iterator[str]:
    return (INDENT + line for line in lines)


def _birth(spec: MachineSpec, variant: Variant) -> list[str]:
    """An instance in its first state, entered in the journal."""
    lines = [
        "def birth(data, key, state):",
        "    state = INITIAL if state is None else state",
        "    if state not in BIRTHS:",
        "        raise ValueError(f'machine {MACHINE!r} is not born in {state!r}; declare it in births')",
        "    m = Instance()",
        f"    m.number = born({variant.index}, int(state), key)",
        "    m.tag = tagged(m.number)",
        "    m.data = data",
        *(f"    m.{counter} = 0" for counter in spec.counters),
        "    m.state = state",
    ]
    if variant.clocks:
        lines += ["    clock = BIRTHS[state]", "    if clock is not None:", "        arm(m, clock)"]
    return [*lines, "    return m"]


def _step(spec: MachineSpec, variant: Variant, event: str, number: int) -> list[str]:
    """The function of one event: a branch per source state, then the refusal."""
    rows = [(index, row) for index, row in enumerate(spec.expanded()) if row.event == event]
    lines = [f"def on_{event}(_stepper, m, arg=None):", "    state = m.state"]
    for source in dict.fromkeys(row.source for _, row in rows):
        assert isinstance(source, IntEnum)  # `expanded` has written out every `ANY`
        lines.append(f"    if state is {source.name}:")
        here = [(index, row) for index, row in rows if row.source is source]
        lines += _indented(list(_indented(_branch(spec, variant, here))))
    return lines + list(_indented(_refusal(variant, event, number)))


def _branch(spec: MachineSpec, variant: Variant, rows: list[tuple[int, Row]]) -> list[str]:
    """One (state, event) pair: its only row, or a decision and a row for each answer."""
    first = rows[0][1]
    decision = next((d for d in spec.decisions if d.state is first.source and d.event == first.event), None)
    if decision is None:
        return _taken(spec, variant, *rows[0], "TAKEN")
    lines = [f"outcome = decide_{decision.name}(m, arg)"]
    for index, row in rows:
        assert row.outcome is not None
        lines.append(f"if outcome is {answer_name(row.outcome)}:")
        lines += _indented(_taken(spec, variant, index, row, "outcome"))
    return [*lines, f"raise NotAnOutcome(MACHINE, {decision_name(decision)}, outcome)"]


def _taken(spec: MachineSpec, variant: Variant, index: int, row: Row, answer: str) -> list[str]:
    """One row: effect, state, counter, record, clock."""
    lines = []
    if row.effect is not None:
        lines.append(f"detail = effect_{row.effect}(m, arg)")
        if variant.strict:
            lines += ["if m.state is not state:", f"    raise MovedByEffect(MACHINE, {row.effect!r}, state, m)"]
        if variant.audited:
            lines.append(f"rest = detailed({index}, detail) if detail else {row_name(index)}")
    if row.target is not row.source:
        lines.append(f"m.state = {row.target.name}")
    if row.counts is not None:
        lines.append(f"m.{row.counts} += 1")
    if variant.audited:
        rest = "rest" if row.effect is not None else row_name(index)
        lines += ["records.append(m.tag)", f"records.append({rest})"]
    if variant.clocks and arms(spec, row):
        lines.append(f"arm(m, {clock_name(row.target)})")
    return [*lines, f"return {answer}"]


def _refusal(variant: Variant, event: str, number: int) -> list[str]:
    """No row: an error in strict mode, a record and a typed answer otherwise."""
    if variant.strict:
        return [f"raise Refused(MACHINE, state, {event!r})"]
    if not variant.audited:
        return ["return REFUSED"]
    return [
        "records.append(m.tag)",
        f"records.append(detailed({REFUSED_ROW:#x}, state << 8 | {number}, {REFUSED_FLAG}))",
        "return REFUSED",
    ]
