"""The report page: everything it needs is in it, so that it opens anywhere, offline, light and dark, at any width.

It owns the page's order and HTML. Style and script stand in `report.css` and `report.js` beside this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from html import escape
from importlib.resources import files
from pathlib import Path

from stagehold.lab.reports.charts import Axes, Line, lines, rates
from stagehold.lab.reports.overview import overview
from stagehold.lab.reports.run import Run, RunError
from stagehold.lab.reports.sentences import comparison, share, summary
from stagehold.lab.reports.tables import Cell, bars, number, table, words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

RUNS_OPEN = 4
"""More runs than that are folded up, each to be opened."""
OF_REQUESTS = (
    ("arrival_s", "came at s"),
    ("prompt_tokens", "prompt"),
    ("device_hit_tokens", "device"),
    ("store_hit_tokens", "store"),
    ("ideal_hit_tokens", "ideal"),
    ("retractions", "retractions"),
    ("ttft_ms", "first token ms"),
)
PHASES = (("until admitted", "admitted_ms"), ("until the first token", "ttft_ms"), ("until the end", "finished_ms"))


class Where(Enum):
    """Where on the page a section stands that the caller made."""

    TOP = auto()
    BEFORE_RUNS = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Extra:
    """A section that the caller made: its title, and HTML that needs nothing from elsewhere."""

    title: str
    html: str
    where: Where = Where.END


def write_report(target: Path, runs: Sequence[Run], *, title: str = "Runs", extras: Sequence[Extra] = ()) -> None:
    """Write one self-contained HTML page about `runs`, the first of which the others are compared with."""
    target.write_text(page(runs, title=title, extras=extras), encoding="utf-8")


def page(runs: Sequence[Run], *, title: str = "Runs", extras: Sequence[Extra] = ()) -> str:
    """The page as text; `RunError` without any run."""
    if not runs:
        raise RunError("report", "at least one run", "none")
    parts = _placed(extras, Where.TOP)
    parts += [_paragraph(comparison(runs))] if len(runs) > 1 else []
    parts += overview(runs)
    parts += _placed(extras, Where.BEFORE_RUNS)
    parts += [_of_one(run, folded=len(runs) > RUNS_OPEN) for run in runs]
    parts += _placed(extras, Where.END)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="data:,"><title>stagehold: {escape(title)}</title>'
        f"<style>{_asset('report.css')}</style></head><body><header><h1>{escape(title)}</h1></header>"
        f"<main>{''.join(parts)}</main><script>{_asset('report.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("stagehold.lab.reports").joinpath(name).read_text(encoding="utf-8")


def _placed(extras: Sequence[Extra], where: Where) -> list[str]:
    return [_section(extra.title, extra.html) for extra in extras if extra.where is where]


def _section(title: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inside}</section>"


def _paragraph(sentences: Iterator[str]) -> str:
    return f"<p>{escape(' '.join(sentences))}</p>"


def _of_one(run: Run, *, folded: bool) -> str:
    inside = "".join(_of_run(run))
    if folded:
        return f"<details><summary>{escape(run.name)}</summary>{inside}</details>"
    return _section(run.name, inside)


def _of_run(run: Run) -> Iterator[str]:
    yield _paragraph(summary(run))
    if run.series:
        yield f'<div class="charts">{"".join(_over_time(run))}</div>'
    queried = run.number("queried_hit_tokens")
    if queried:
        yield "<h3>Where hit tokens ended</h3>"
        ends = [("spliced", run.number("spliced_tokens")), *run.losses.items()]
        yield bars(
            [(name.replace("_", " "), tokens, f"{tokens:,.0f}, {share(tokens, queried)}") for name, tokens in ends]
        )
    if run.found.get("slowest"):
        yield "<h3>Slowest requests</h3>"
        yield _slowest(run)


def _over_time(run: Run) -> Iterator[str]:
    seconds = run.series["seconds"]

    def grown(named: Sequence[tuple[str, str]], scale: float = 1.0) -> list[Line]:
        return [
            Line(name, xs, [y * scale for y in ys])
            for name, column in named
            if column in run.series
            for xs, ys in (rates(seconds, run.series[column]),)
        ]

    def levels(named: Sequence[tuple[str, str]]) -> list[Line]:
        return [Line(name, seconds, run.series[column]) for name, column in named if column in run.series]

    hits = (("device", "device_hit_tokens"), ("store", "store_hit_tokens"))
    ends = (("spliced", "spliced_tokens"), ("lost", "lost_tokens"))
    losses = [(reason.replace("_", " "), f"lost_{reason}") for reason in run.losses]
    moved = (("read", "read_bytes"), ("written", "written_bytes"))
    owned = (("staging", "owned_staging"), ("pins", "owned_pin"), ("write backlog", "owned_backlog"))
    again = (("retries", "retries"), ("deferrals", "deferrals"))
    yield _chart("Prompt tokens by tier", "tokens/s", grown((*hits, ("computed", "computed_tokens"))), stacked=True)
    yield _chart("Hit tokens by tier", "tokens/s", grown(hits), stacked=True)
    yield _chart("Queried hit tokens", "tokens/s", grown(ends), stacked=True)
    yield _chart("Hit tokens lost, by reason", "tokens/s", grown(losses), stacked=True)
    yield _chart("Bytes moved", "GB/s", grown(moved, 1e-9))
    yield _chart("Staging, pins, backlog", "pages", levels(owned))
    yield _chart("Retries and deferrals", "per second", grown(again))
    yield _chart("Requests waiting or running", "requests", levels((("requests", "requests"),)))


def _chart(title: str, unit: str, drawn: Sequence[Line], *, stacked: bool = False) -> str:
    return lines(title, Axes("seconds", unit), drawn, stacked=stacked) if drawn and drawn[0].xs else ""


def _slowest(run: Run) -> str:
    """The slowest requests with their times; figures that none of them has are left out."""
    rows = run.found["slowest"]
    longest = max((row.get(field, 0) for row in rows for _, field in PHASES), default=0) or 1
    known = [(field, head) for field, head in OF_REQUESTS if any(field in row for row in rows)]
    cells = (
        [
            words(str(row.get("request", ""))),
            *(number(row.get(field, 0)) for field, _ in known),
            _timeline(row, longest),
        ]
        for row in rows
    )
    legend = "".join(f'<span><i class="p{at}"></i>{name}</span>' for at, (name, _) in enumerate(PHASES))
    heads = ["request", *(head for _, head in known), "its time"]
    return f'{table("Slowest requests", heads, cells)}<p class="legend">{legend}</p>'


def _timeline(row: dict[str, float], longest: float) -> Cell:
    parts, before = [], 0.0
    for at, (name, field) in enumerate(PHASES):
        end = max(before, row.get(field, 0))
        width = 100 * (end - before) / longest
        parts.append(f'<b class="p{at}" style="width:{width:.2f}%" title="{name}: {end - before:,.0f} ms"></b>')
        before = end
    return Cell(f'<span class="times">{"".join(parts)}</span>', before)
