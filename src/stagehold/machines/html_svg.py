"""A machine as inline SVG: boxes that can be chosen, arrows that carry events, weights where a log gave some.

Owns the SVG text; the page's style sheet owns every colour. Needs no program beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from stagehold.machines import labels
from stagehold.machines.html_layout import Laid, Link, Point, Size, lay_out
from stagehold.specs.declare import MachineSpec, Row, State

CHAR, LINE, PAD = 6.7, 15.0, 8.0
"""Pixels: width of a character of the page's 11 px monospace, height of a line, room inside a box."""


@dataclass(frozen=True, slots=True)
class _Box:
    name: str
    kind: str
    lines: tuple[str, ...]
    tip: str

    def size(self) -> Size:
        """Width and height in pixels."""
        return _size(self.lines, PAD)


@dataclass(frozen=True, slots=True)
class _Arrow:
    source: str
    target: str
    lines: tuple[str, ...]
    taken: int | None
    """How often its rows were taken together; None without a log."""


def svg(spec: MachineSpec, taken: Mapping[int, int] | None = None) -> str:
    """The machine as one `<svg>`; `taken`: from the place of a row in `spec.rows` to its count."""
    boxes = _boxes(spec)
    arrows = _arrows(spec, taken)
    names = [box.name for box in boxes]
    links = [Link(names.index(a.source), names.index(a.target), _size(a.lines, 2.0)) for a in arrows]
    laid = lay_out([box.size() for box in boxes], links)
    wires = [_wire(spec.name, *drawn) for drawn in zip(arrows, _wired(laid, boxes, links), strict=True)]
    captions = [_caption(arrow, at) for arrow, at in zip(arrows, laid.captions, strict=True)]
    parts = wires + captions + [_drawn(box, at) for box, at in zip(boxes, laid.boxes, strict=True)]
    size = f'width="{laid.width:g}" height="{laid.height:g}" viewBox="0 0 {laid.width:g} {laid.height:g}"'
    told = f'role="group" aria-label="{spec.name}: states and rows"'
    return f'<svg class="machine" {size} {told}>{_tip(spec.name)}{"".join(parts)}</svg>'


def _tip(name: str) -> str:
    """The arrow's head, one for each machine: what stands in a hidden panel is drawn nowhere else."""
    box = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse"'
    return f'<defs><marker id="tip-{name}" {box} orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'


def _boxes(spec: MachineSpec) -> list[_Box]:
    boxes = [_Box(labels.word(s.name), s.kind.value, _lines(spec, s), s.doc) for s in spec.states]
    if any(labels.source(row) == labels.ANY_TEXT for row in spec.rows):
        boxes.insert(0, _Box(labels.ANY_TEXT, "any", (labels.ANY_TEXT,), "every state that is not terminal"))
    return boxes


def _lines(spec: MachineSpec, state: State) -> tuple[str, ...]:
    loops = [row for row in spec.rows if row.source is state.name and row.target is state.name]
    return (labels.word(state.name), *labels.facts(state), *(f"↺ {line}" for line in _events(loops)))


def _arrows(spec: MachineSpec, taken: Mapping[int, int] | None) -> list[_Arrow]:
    """One arrow for all rows between the same two states, in declared order."""
    groups: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(spec.rows):
        if row.source is not row.target:
            groups.setdefault((labels.source(row), labels.word(row.target)), []).append(at)
    return [_arrow(spec, ends, places, taken) for ends, places in groups.items()]


def _arrow(spec: MachineSpec, ends: tuple[str, str], places: Sequence[int], taken: Mapping[int, int] | None) -> _Arrow:
    lines = _events([spec.rows[at] for at in places])
    if taken is None:
        return _Arrow(*ends, tuple(lines), None)
    total = sum(taken.get(at, 0) for at in places)
    return _Arrow(*ends, (*lines, f"{total:,} taken" if total else "never taken"), total)


def _events(rows: Sequence[Row]) -> list[str]:
    """A line for each event: its outcome's name where there is one, their number where there are more."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.event, []).extend([row.outcome.name] if row.outcome is not None else [])
    return [_event(event, outcomes) for event, outcomes in found.items()]


def _event(event: str, outcomes: Sequence[str]) -> str:
    if not outcomes:
        return event
    return f"{event}: {outcomes[0]}" if len(outcomes) == 1 else f"{event}: {len(outcomes)} outcomes"


def _size(lines: Sequence[str], pad: float) -> Size:
    return max(map(len, lines)) * CHAR + 2 * pad, len(lines) * LINE + pad


def _wired(laid: Laid, boxes: Sequence[_Box], links: Sequence[Link]) -> list[list[Point]]:
    """The arrows' points, their ends moved from a box's centre to its edge and spread along it."""
    wires = [list(wire) for wire in laid.wires]
    ends: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for at, (wire, link) in enumerate(zip(wires, links, strict=True)):
        for box, end, near in ((link.source, 0, wire[1]), (link.target, -1, wire[-2])):
            side = 1 if near[1] > wire[end][1] else -1
            ends.setdefault((box, side), []).append((near[0], at, end))
    for (box, side), meet in ends.items():
        width, height = boxes[box].size()
        x, y = laid.boxes[box]
        for place, (_, at, end) in enumerate(sorted(meet)):
            shift = (place + 1) / (len(meet) + 1) - 0.5
            wires[at][end] = (x + shift * width * 0.9, y + side * height / 2)
    return wires


def _wire(machine: str, arrow: _Arrow, points: Sequence[Point]) -> str:
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x0, y0), (x1, y1) in pairwise(points):
        half = (y0 + y1) / 2
        path += f"C{x0:g} {half:g} {x1:g} {half:g} {x1:g} {y1:g}"
    weight = ""
    if arrow.taken is not None:
        weight = f' style="stroke-width:{1 + 0.8 * len(str(arrow.taken)) if arrow.taken else 1.5:g}"'
    return _group(arrow, f'<path d="{path}" marker-end="url(#tip-{machine})"{weight}/>')


def _caption(arrow: _Arrow, at: Point) -> str:
    """Drawn after all arrows, so that none of them crosses it."""
    return _group(arrow, _text(arrow.lines, at, _size(arrow.lines, 2.0)))


def _group(arrow: _Arrow, inside: str) -> str:
    look = "wire never" if arrow.taken == 0 else "wire"
    return f'<g class="{look}" data-from="{escape(arrow.source)}" data-to="{escape(arrow.target)}">{inside}</g>'


def _drawn(box: _Box, at: Point) -> str:
    width, height = box.size()
    x, y = at[0] - width / 2, at[1] - height / 2
    rect = _rect((x, y), (width, height), 'rx="6"')
    if box.kind == "terminal":
        rect += _rect((x + 3, y + 3), (width - 6, height - 6), 'rx="4" class="inner"')
    told = f"<title>{escape(box.tip)}</title>{rect}{_text(box.lines, at, (width, height))}"
    return (
        f'<g class="state {box.kind}" tabindex="0" role="button" aria-pressed="false" '
        f'data-state="{escape(box.name)}" aria-label="{escape(", ".join(box.lines))}">{told}</g>'
    )


def _text(lines: Sequence[str], at: Point, size: Size) -> str:
    top = at[1] - len(lines) * LINE / 2 + LINE * 0.75
    spans = "".join(
        f'<tspan x="{at[0]:g}" y="{top + n * LINE:g}">{escape(line)}</tspan>' for n, line in enumerate(lines)
    )
    back = _rect((at[0] - size[0] / 2, at[1] - size[1] / 2), size, 'class="back"')
    return f"{back}<text>{spans}</text>"


def _rect(corner: Point, size: Size, look: str) -> str:
    place = f'x="{corner[0]:g}" y="{corner[1]:g}" width="{size[0]:g}" height="{size[1]:g}"'
    return f"<rect {place} {look}/>"
