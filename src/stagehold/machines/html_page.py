"""All machines on one page that needs nothing beside it: no network, no program, light and dark, any width.

Owns the page's HTML. Its style and script stand in `html_page.css` and `html_page.js` beside this module and
are written into the page. With a log's story it shows how often each row was taken, and requests over time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from stagehold.machines import labels
from stagehold.machines.heat import Heat
from stagehold.machines.html_svg import svg
from stagehold.machines.timeline import Timelines
from stagehold.specs.declare import Books, Decision, Kind, MachineSpec, Row, State

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True)
class Story:
    """What a log adds to the page; `name` is how the log is called on it."""

    name: str
    heat: Heat
    timelines: Timelines


def page(specs: Sequence[MachineSpec], digest: str, story: Story | None = None) -> str:
    """The whole page as text; `digest` is the declaration's hash."""
    panels = [(spec.name, _machine(spec, story)) for spec in specs]
    if story is not None:
        panels += [("heat", _heat(specs, story)), ("timelines", _timelines(specs, story))]
    tabs = "".join(_tab(name) for name, _ in panels)
    body = "".join(_panel(name, text) for name, text in panels)
    about = f" and the log <b>{escape(story.name)}</b>" if story else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<link rel="icon" href="data:,"><title>stagehold: machines</title>'
        f"<style>{_asset('html_page.css')}</style></head><body>"
        f"<header><h1>Machines</h1><p>Declaration <code>{digest}</code>{about}.</p></header>"
        f'<nav role="tablist" aria-label="Machines">{tabs}</nav><main>{body}</main>'
        f"<script>{_asset('html_page.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("stagehold.machines").joinpath(name).read_text(encoding="utf-8")


def _tab(name: str) -> str:
    return (
        f'<button role="tab" id="tab-{name}" aria-controls="panel-{name}" '
        f'aria-selected="false" tabindex="-1">{name}</button>'
    )


def _panel(name: str, text: str) -> str:
    return f'<section role="tabpanel" id="panel-{name}" aria-labelledby="tab-{name}">{text}</section>'


def _machine(spec: MachineSpec, story: Story | None) -> str:
    taken = dict(enumerate(story.heat.taken[spec.name])) if story else None
    begins = " or ".join(labels.word(name) for name in labels.begins(spec))
    lead = f"One per {spec.one_per}. {spec.doc} A {spec.life.value} machine, born in {begins}."
    return "".join(
        [
            f"<h2>{spec.name}</h2><p>{escape(lead)}</p>",
            _scroll(f"Diagram of {spec.name}", svg(spec, taken)),
            _tools(spec, story),
            f"<h3>Rows</h3>{_rows(spec, taken)}",
            f"<h3>States</h3>{_scroll(f'States of {spec.name}', _states(spec))}",
            f"<h3>States and events</h3><p>An empty cell is refused.</p>{_scroll('Matrix', _matrix(spec))}",
            f"<h3>Outcomes</h3>{''.join(_decision(spec, asked) for asked in spec.decisions) or _NO_DECISION}",
        ]
    )


_NO_DECISION = "<p>No decision: every event of this machine has one way to go.</p>"


def _scroll(name: str, inside: str) -> str:
    """Wide things scroll on their own, also by keyboard, so that the page never does."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{inside}</div>'


def _tools(spec: MachineSpec, story: Story | None) -> str:
    """The controls that narrow the table of rows; choosing a state in the diagram does the same."""
    options = "".join(f"<option>{labels.word(state.name)}</option>" for state in spec.states)
    never = '<label><input type="checkbox" class="never-only"> only rows never taken</label>' if story else ""
    choose = f'<label>State <select class="state-choice"><option value="">all</option>{options}</select></label>'
    return f'<div class="tools">{choose}{never}<output class="shown"></output></div>'


def _rows(spec: MachineSpec, taken: dict[int, int] | None) -> str:
    heads = [
        "source",
        "event",
        "outcome",
        "target",
        "effect",
        "takes",
        "releases",
        "bounded by",
        "books",
        "why",
    ]
    heads = [*(["taken"] if taken is not None else []), *heads]
    most = max([*taken.values(), 1]) if taken else 1
    body = "".join(
        _row(spec, row, heads, None if taken is None else (taken[place], most)) for place, row in labels.in_order(spec)
    )
    return f'<table class="rows"><thead><tr>{_heads(heads)}</tr></thead><tbody>{body}</tbody></table>'


def _row(spec: MachineSpec, row: Row, heads: Sequence[str], heat: tuple[int, int] | None) -> str:
    asked = labels.decision(spec, row)
    outcome = "" if row.outcome is None else f"{asked.name if asked else '?'}: {row.outcome.name}"
    moves = labels.moves(row)
    cells = [
        labels.source(row),
        row.event,
        outcome,
        labels.word(row.target),
        row.effect or "",
        ", ".join(row.takes),
        ", ".join(move[1:] for move in moves if move.startswith("-")),
        labels.counting(row),
        "" if row.books is Books.NONE else row.books.value,
        row.why,
    ]
    shown = [escape(cell) for cell in cells]
    look = ""
    if heat is not None:
        shown.insert(0, _bar(*heat))
        look = f' data-taken="{heat[0]}"' + ("" if heat[0] else ' class="never"')
    tds = "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in zip(heads, shown, strict=True))
    ends = f'data-source="{escape(labels.source(row))}" data-target="{labels.word(row.target)}"'
    return f"<tr {ends}{look}>{tds}</tr>"


def _bar(count: int, most: int) -> str:
    """A count with a bar on a logarithmic scale, since rows differ by many powers of ten."""
    if not count:
        return "<b>never</b>"
    share = round(100 * count.bit_length() / most.bit_length())
    return f'{count:,}<span class="bar" style="width:{share}%"></span>'


def _states(spec: MachineSpec) -> str:
    heads = ["state", "kind", "owns", "deadline", "SGLang's name", "meaning"]
    return _table(heads, (_state(state) for state in spec.states))


def _state(state: State) -> list[str]:
    owns, deadline = labels.listed(state.owns, ""), labels.deadline(state)
    return [labels.word(state.name), state.kind.value, owns, deadline, state.elsewhere, state.doc]


def _matrix(spec: MachineSpec) -> str:
    cells: dict[tuple[str, str], list[str]] = {}
    for row in spec.expanded():
        leads = labels.word(row.target) if row.outcome is None else f"{row.outcome.name} → {labels.word(row.target)}"
        cells.setdefault((labels.source(row), row.event), []).append(leads)
    names = [labels.word(state.name) for state in spec.states if state.kind is not Kind.TERMINAL]
    events = spec.events()
    lines = ([name, *("\n".join(cells.get((name, event), ())) for event in events)] for name in names)
    return _table(["", *events], lines)


def _decision(spec: MachineSpec, asked: Decision) -> str:
    found = {row.outcome: row for row in spec.rows if row.source is asked.state and row.event == asked.event}
    lines = [
        [str(int(member)), member.name, labels.word(found[member].target), found[member].why]
        for member in asked.outcomes
        if member in found
    ]
    doc = " ".join((asked.outcomes.__doc__ or "").split())
    place = f"{asked.name}: {asked.outcomes.__name__}, asked in {labels.word(asked.state)} on {asked.event}"
    table = _scroll(place, _table(["#", "outcome", "target", "why"], lines))
    return f"<details><summary>{escape(place)}</summary><p>{escape(doc)}</p>{table}</details>"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{_heads(heads)}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    return f"<td>{escape(text).replace(chr(10), '<br>')}</td>"


def _heads(heads: Sequence[str]) -> str:
    return "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)


def _heat(specs: Sequence[MachineSpec], story: Story) -> str:
    heat = story.heat
    lines = []
    for spec in specs:
        counts = heat.taken[spec.name]
        never = [f"{labels.source(row)}: {labels.trigger(spec, row)}" for row in heat.never(spec)]
        share = f"{len(counts) - len(never)} of {len(counts)}"
        figures = [f"{heat.births[spec.name]:,}", f"{sum(counts):,}", f"{heat.refused[spec.name]:,}"]
        lines.append([spec.name, *figures, share, "\n".join(never)])
    heads = ["machine", "instances", "steps", "refused events", "rows taken", "rows never taken"]
    lead = f"{heat.blocks:,} blocks, ticks {heat.first_tick:,} to {heat.last_tick:,}, {heat.records:,} records."
    return f"<h2>heat</h2><p>{lead}</p>{_scroll('Heat', _table(heads, lines))}"


def _timelines(specs: Sequence[MachineSpec], story: Story) -> str:
    shown = story.timelines
    kinds = {spec.name: {labels.word(s.name): s.kind.value for s in spec.states} for spec in specs}
    data = json.dumps({"kinds": kinds, **shown.plain()}, separators=(",", ":")).replace("<", "\\u003c")
    out = (
        f" The {len(shown.requests):,} with the most steps are shown, {shown.left_out:,} are left out."
        if shown.left_out
        else ""
    )
    return (
        f"<h2>timelines</h2><p>One lane for each request and each hold that it had a claim on.{out}</p>"
        '<div class="tools"><label>Request <input type="search" class="request-filter"></label>'
        '<output class="found"></output></div>'
        '<div class="times"><ul class="requests"></ul><div class="story" aria-live="polite"></div></div>'
        f'<script type="application/json" id="timeline-data">{data}</script>'
    )
