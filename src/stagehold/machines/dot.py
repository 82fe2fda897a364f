"""A machine as Graphviz DOT, and as SVG where the program `dot` is at hand.

Owns the DOT text. It searches for no program itself: the caller hands over where `dot` lies.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stagehold.machines import labels
from stagehold.specs.declare import Kind, MachineSpec, Row, State

DRAW_SECONDS_MAX = 30
"""A machine of some fifty rows takes well under a second; more means that the program hangs."""

_SHAPES = {
    Kind.TERMINAL: "box, peripheries=2",
    Kind.PASSING: "box, style=dashed",
    Kind.FLYING: "box, style=bold",
}


class NotDrawn(Enum):
    """Why there is no picture."""

    NO_PROGRAM = "Graphviz is not installed: no program `dot` was found"
    FAILED = "`dot` ended with an error"
    TOO_SLOW = f"`dot` did not end within {DRAW_SECONDS_MAX} seconds"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture: one SVG document as text."""

    svg: str


def text(spec: MachineSpec, digest: str, taken: Mapping[int, int] | None = None) -> str:
    """The machine as DOT, `digest` being the declaration's hash.

    With `taken`, from the place of a row in `spec.rows` to how often it was taken, arrows grow with their
    count, and rows that were never taken are dashed and red.
    """
    head = [
        f"// {spec.name}: one per {spec.one_per}. {spec.doc}",
        f"// declaration {digest}",
        f"digraph {spec.name} {{",
        '    node [shape=box, fontname="sans-serif"]; edge [fontname="sans-serif", fontsize=10];',
    ]
    return "\n".join([*head, *_nodes(spec), *_edges(spec, taken), "}"]) + "\n"


def draw(source: str, program: Path | None) -> Drawn | NotDrawn:
    """`source` as SVG, drawn by `program` (where `dot` lies; None where there is none)."""
    if program is None:
        return NotDrawn.NO_PROGRAM
    try:
        done = subprocess.run(  # noqa: S603  the caller names the program; the text goes to its input
            [str(program), "-Tsvg"],
            input=source,
            capture_output=True,
            text=True,
            timeout=DRAW_SECONDS_MAX,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return NotDrawn.TOO_SLOW
    except (subprocess.CalledProcessError, OSError):
        return NotDrawn.FAILED
    return Drawn(done.stdout)


def _nodes(spec: MachineSpec) -> list[str]:
    lines = [f"    {_quoted(labels.word(state.name))} [{_box(state)}];" for state in spec.states]
    if any(labels.source(row) == labels.ANY_TEXT for row in spec.rows):
        lines.append(f"    {_quoted(labels.ANY_TEXT)} [shape=plaintext];")
    lines.append('    "start" [shape=point];')
    return lines + [f'    "start" -> {_quoted(labels.word(name))};' for name in labels.begins(spec)]


def _box(state: State) -> str:
    caption = "\n".join([labels.word(state.name), *labels.facts(state)])
    return f"shape={_SHAPES.get(state.kind, 'box')}, label={_quoted(caption)}, tooltip={_quoted(state.doc)}"


def _edges(spec: MachineSpec, taken: Mapping[int, int] | None) -> list[str]:
    return [_edge(spec, row, None if taken is None else taken.get(place, 0)) for place, row in labels.in_order(spec)]


def _edge(spec: MachineSpec, row: Row, count: int | None) -> str:
    caption, look = labels.label(spec, row), ""
    if count is not None:
        caption += f" ({count} times)" if count else " (never)"
        look = f", penwidth={1 + len(str(count))}" if count else ", style=dashed, color=red"
    ends = f"{_quoted(labels.source(row))} -> {_quoted(labels.word(row.target))}"
    return f"    {ends} [label={_quoted(caption)}{look}];"


def _quoted(words: str) -> str:
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
