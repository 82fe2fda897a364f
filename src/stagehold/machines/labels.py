"""The words of a declaration, as every picture and page of it prints them.

Owns the order of rows and the text of each part of a row. Draws nothing and knows no markup: Mermaid, DOT,
Markdown and HTML each escape these words in their own way.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from stagehold.specs.declare import ANY, Decision, MachineSpec, Row, State

ANY_TEXT = "any but terminal"
"""What stands for the source of a row that starts in every state that is not terminal."""


def word(name: IntEnum) -> str:
    """A state as it is written everywhere: its member's name in small letters."""
    return name.name.lower()


def source(row: Row) -> str:
    """The row's source in words."""
    return word(row.source) if isinstance(row.source, IntEnum) else ANY_TEXT


def row_name(spec: MachineSpec, row: Row) -> str:
    """`machine.source.event.OUTCOME`, by which figures name a row; the source of a row from every state is `*`."""
    start = word(row.source) if isinstance(row.source, IntEnum) else row.source
    return f"{spec.name}.{start}.{row.event}" + (f".{row.outcome.name}" if row.outcome is not None else "")


def decision(spec: MachineSpec, row: Row) -> Decision | None:
    """The decision that gave the row's outcome; None for a row without one, or one that nothing declares."""
    found = (d for d in spec.decisions if d.state is row.source and d.event == row.event)
    return next(found, None)


def in_order(spec: MachineSpec) -> list[tuple[int, Row]]:
    """The rows with their places, sorted by source, event and outcome: a changed row moves no other line."""
    return sorted(enumerate(spec.rows), key=lambda placed: _place(placed[1]))


def _place(row: Row) -> tuple[int, int, str, int]:
    start = (0, int(row.source)) if isinstance(row.source, IntEnum) else (1, 0)
    return (*start, row.event, -1 if row.outcome is None else int(row.outcome))


def trigger(spec: MachineSpec, row: Row) -> str:
    """`event [decision: OUTCOME]`, or the event alone."""
    if row.outcome is None:
        return row.event
    asked = decision(spec, row)
    return f"{row.event} [{asked.name + ': ' if asked else ''}{row.outcome.name}]"


def label(spec: MachineSpec, row: Row) -> str:
    """`event [decision: OUTCOME] / effect +takes -releases (what it counts)`: an arrow's whole text."""
    deed = " ".join([*([row.effect] if row.effect else []), *moves(row)])
    bound = counting(row)
    return trigger(spec, row) + (f" / {deed}" if deed else "") + (f" ({bound})" if bound else "")


def moves(row: Row) -> list[str]:
    """`+` before each resource taken, `-` before each given back."""
    back = ["all it owns"] if row.releases == (ANY,) else row.releases
    return [f"+{taken}" for taken in row.takes] + [f"-{given}" for given in back]


def counting(row: Row) -> str:
    """What bounds a repetition of the row: a counter that moves, or the clock it runs on."""
    parts = [f"{row.counts} +1"] if row.counts else []
    return ", ".join([*parts, *([f"while {row.clock}"] if row.clock else [])])


def owned(state: State) -> str:
    """`owns a, b`; empty for a state that owns nothing."""
    return f"owns {', '.join(state.owns)}" if state.owns else ""


def deadline(state: State) -> str:
    """`limit → event`, whose limit it waits on where that is another machine's, or nothing."""
    if state.deadline is not None:
        return f"{state.deadline.limit} → {state.deadline.event}"
    return f"bounded by {state.delegate}" if state.delegate else ""


def facts(state: State) -> list[str]:
    """The lines that stand in a state's box under its name: kind, ownership, deadline."""
    return [line for line in (state.kind.value, owned(state), deadline(state)) if line]


def listed(words: Iterable[str], nothing: str = "-") -> str:
    """Words with commas between them; a dash for none."""
    return ", ".join(words) or nothing


def begins(spec: MachineSpec) -> tuple[IntEnum, ...]:
    """Every state in which an instance may be born, the usual one first."""
    return (spec.initial, *spec.births)
