"""`stagehold report`: runs on one page that needs nothing beside it, with the machines' heat where a run has a log."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out

if TYPE_CHECKING:
    from stagehold.lab.reports.page import Extra
    from stagehold.lab.reports.run import Run
    from stagehold.machines.timeline import Lane, Timeline
    from stagehold.specs.declare import MachineSpec

BUTTON = 'tabindex="0" role="button" aria-pressed="false" '
"""What makes a state a button on the machines' own page; here there is nothing to press."""

REQUESTS_SHOWN = 20


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Runs: `simulate --out`, `replay --out`, and tables of cells, such as those of `sweep`."),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="What stands at its top.")] = "Runs",
    heat: Annotated[bool, typer.Option(help="Draw the machines of runs whose audit log is there.")] = True,
) -> None:
    """Write one HTML page about some runs; the first is what the others are compared with."""
    from stagehold.lab.reports.page import page
    from stagehold.lab.reports.run import RunError
    from stagehold.lab.reports.swept import extras as charts
    from stagehold.lab.reports.swept import read_all

    for path in runs:
        refuse_overwriting("--out", out, path)
    try:
        found = [run for path in runs for run in read_all(path)]
        extras = charts([run for run in found if run.has("cell")])
    except RunError as error:
        raise BadInput(str(error)) from error
    extras += heats_of(found) if heat else []
    try:
        written = page(found, title=title, extras=extras).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"--title {title!r}: expected text that UTF-8 can write") from error
    write_out(out, written)
    typer.echo(f"{len(found)} runs on {out}")


def heats_of(runs: Sequence[Run]) -> list[Extra]:
    """How often each row was taken, drawn and as a table, of every log that a run has left; of each log once."""
    logs: dict[str, Run] = {}
    for run in runs:
        log = run.found.get("audit_log")
        if isinstance(log, str) and Path(log).is_file():
            logs.setdefault(log, run)
    return [extra for log, run in logs.items() for extra in _machines(run, log)]


def _machines(run: Run, log: str) -> list[Extra]:
    from stagehold.cli.audit import machines_of
    from stagehold.lab.reports.page import Extra
    from stagehold.machines.audit_read import BadLogError
    from stagehold.machines.heat import stats
    from stagehold.machines.timeline import timelines

    machines = machines_of(Path(log))
    slow = [str(row.get("request")) for row in run.found.get("slowest") or []][:REQUESTS_SHOWN]
    try:
        counted, told = stats(Path(log), machines), timelines(Path(log), machines=machines, wanted=slow)
    except BadLogError as error:
        raise BadInput(str(error)) from error
    parts = [_machine(spec, counted.taken[spec.name]) for spec in machines]
    lead = f"<p>{counted.records:,} records in {escape(Path(log).name)}; rows never taken are dashed.</p>"
    return [
        Extra(f"{run.name}: states over time", "".join(_request(one) for one in _chosen(run, told.requests))),
        Extra(f"{run.name}: machines", lead + "".join(parts)),
    ]


def _chosen(run: Run, told: Sequence[Timeline]) -> Sequence[Timeline]:
    """The slowest requests as far as the log's timelines have them, else those with the most steps."""
    slow = [f": {row.get('request')} #" for row in run.found.get("slowest") or []]
    found = [one for name in slow for one in told if name in one.title]
    return (found or sorted(told, key=lambda one: -sum(len(lane.steps) for lane in one.lanes)))[:REQUESTS_SHOWN]


def _request(one: Timeline) -> str:
    """A request's lane and those of its holds, on one axis of ticks."""
    ticks = [step.tick for lane in one.lanes for step in lane.steps]
    first, last = min(ticks), max(ticks) + 1
    lanes = "".join(
        f'<p class="lane">{escape(lane.title)}</p><div class="strip">{_strip(lane, first, last)}</div>'
        for lane in one.lanes
    )
    return f"<details><summary>{escape(one.title)}: ticks {first:,} to {last - 1:,}</summary>{lanes}</details>"


def _strip(lane: Lane, first: int, last: int) -> str:
    from stagehold.machines import MACHINES, labels

    (spec,) = (spec for spec in MACHINES if spec.name == lane.machine)
    kinds = {labels.word(state.name): state.kind.value for state in spec.states}
    moves = [step for at, step in enumerate(lane.steps) if at == 0 or step.state != lane.steps[at - 1].state]
    parts = []
    for at, step in enumerate(moves):
        ended = step.tick + 1 if kinds[step.state] == "terminal" else last
        until = moves[at + 1].tick if at + 1 < len(moves) else ended
        left, width = (100 * ticks / (last - first) for ticks in (step.tick - first, until - step.tick))
        place = f"left:{left:.2f}%;width:{width:.2f}%;background:var(--{kinds[step.state]})"
        parts.append(f'<span style="{place}" title="{step.state}, ticks {step.tick} to {until}">{step.state}</span>')
    return "".join(parts)


def _machine(spec: MachineSpec, taken: tuple[int, ...]) -> str:
    from stagehold.lab.reports.tables import Cell, number, table, words
    from stagehold.machines import labels
    from stagehold.machines.html_svg import svg

    most = max([*taken, 1])
    rows = [
        [
            words(labels.source(row)),
            words(labels.label(spec, row)),
            words(labels.word(row.target)),
            number(taken[place]),
            Cell(f'<span class="heat" style="width:{_warmth(taken[place], most)}rem"></span>', taken[place]),
        ]
        for place, row in labels.in_order(spec)
    ]
    drawn = svg(spec, dict(enumerate(taken))).replace(BUTTON, "")
    return (
        f"<details><summary>{spec.name}: {sum(taken):,} steps, {sum(map(bool, taken))} of {len(taken)} rows</summary>"
        f'<div class="scroll" role="region" tabindex="0" aria-label="Diagram of {spec.name}">{drawn}</div>'
        f"{table(f'Rows of {spec.name}', ('source', 'row', 'target', 'taken', 'heat'), rows)}</details>"
    )


def _warmth(count: int, most: int) -> float:
    """Width of a bar on a logarithmic scale, since rows differ by many powers of ten."""
    return round(8 * count.bit_length() / most.bit_length(), 2)
