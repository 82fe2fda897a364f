"""A search for sizes as a section of the report page: the answer, what it rests on, and a chart of all pairs.

It owns the chart's coordinates; its colours are the style sheet's.
"""

from __future__ import annotations

from html import escape

from stagehold.lab.reports.page import Extra, Where
from stagehold.lab.reports.tables import Cell, number, table
from stagehold.lab.sizing import Place, Sized, reached
from stagehold.lab.sizing_words import assumptions, implied, mark, paragraph

CELL_WIDTH, CELL_HEIGHT = 64, 30
LEFT, TOP = 64, 8
BELOW = 40


def section(found: Sized) -> Extra:
    """The section, to stand before the runs."""
    rests = "".join(f"<li>{escape(one)}</li>" for one in assumptions(found))
    html = (
        f"<p>{escape(paragraph(found))}</p>{_figure(found)}<h3>What this rests on</h3><ul>{rests}</ul>{_table(found)}"
    )
    return Extra("Host memory and store bandwidth", html, Where.TOP)


def chart(found: Sized) -> str:
    """All pairs as one SVG: host memory upwards, the link to the right."""
    rows, columns = len(found.grid.host_gb), len(found.grid.store_gbps)
    width, height = LEFT + columns * CELL_WIDTH + 8, TOP + rows * CELL_HEIGHT + BELOW
    told = "Pairs of host memory and store bandwidth, and how many of the ideal hit tokens each reaches"
    parts = "".join(_place(found, (row, column)) for row in range(rows) for column in range(columns))
    return (
        f'<svg class="sizes" viewBox="0 0 {width} {height}" role="img" aria-label="{told}">{parts}{_axes(found)}</svg>'
    )


def _figure(found: Sized) -> str:
    legend = "".join(
        f'<span><i class="{look}"></i>{told}</span>'
        for look, told in (("good", "good enough"), ("poor", "not"), ("answer", "the answer"))
    )
    return (
        '<figure class="chart wide"><figcaption>Hit tokens in % of the ideal <small>by GB of host memory and GB/s to '
        f"the store; pale: not simulated, follows from another pair</small></figcaption>{chart(found)}"
        f'<p class="legend">{legend}</p></figure>'
    )


def _place(found: Sized, place: Place) -> str:
    row, column = place
    seen = place in found.runs
    good = found.holds(place) if seen else implied(found, place)
    look = f"{'good' if good else 'poor'}{'' if seen else ' unseen'}{' answer' if place == found.answer else ''}"
    x, y = LEFT + column * CELL_WIDTH, TOP + (len(found.grid.host_gb) - 1 - row) * CELL_HEIGHT
    text = mark(found, place).strip("[]*t") if seen else ""
    middle = f'x="{x + CELL_WIDTH / 2:g}" y="{y + CELL_HEIGHT / 2 + 4:g}" text-anchor="middle"'
    box = f'x="{x + 1}" y="{y + 1}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" rx="4"'
    return f'<rect class="{look}" {box}/><text {middle}>{text}</text>'


def _axes(found: Sized) -> str:
    grid, bottom = found.grid, TOP + len(found.grid.host_gb) * CELL_HEIGHT
    parts = [
        f'<text x="{LEFT - 6}" y="{bottom - row * CELL_HEIGHT - 11}" text-anchor="end">{gb:g} GB</text>'
        for row, gb in enumerate(grid.host_gb)
    ]
    parts += [
        f'<text x="{LEFT + (column + 0.5) * CELL_WIDTH:g}" y="{bottom + 15}" text-anchor="middle">{gbps:g}</text>'
        for column, gbps in enumerate(grid.store_gbps)
    ]
    right = LEFT + len(grid.store_gbps) * CELL_WIDTH
    parts.append(f'<text x="{right}" y="{bottom + 32}" text-anchor="end">GB/s between server and store</text>')
    return "".join(parts)


def _table(found: Sized) -> str:
    heads = ["host GB", "store GB/s", "hits of ideal", "first token p50 ms", "good enough", "GB read"]
    rows = [
        [
            number(found.grid.host_gb[row], 2),
            number(found.grid.store_gbps[column], 2),
            Cell(f"{100 * reached(run):.1f} %", reached(run)),
            number(run["ttft_ms"]["p50"]),
            Cell("yes" if found.holds((row, column)) else "no", float(found.holds((row, column)))),
            number(run["read_bytes"] / 1e9, 1),
        ]
        for (row, column), run in sorted(found.runs.items())
    ]
    return f"<h3>Pairs that were simulated</h3>{table('Pairs that were simulated', heads, rows)}"
