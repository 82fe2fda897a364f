"""`stagehold size`: the least host memory and the slowest store that serve a trace about as well as the largest."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out
from stagehold.cli.sweep import end, pairs, run_cells

if TYPE_CHECKING:
    from stagehold.lab.sizing import Sized

REQUESTS = 1000
WIDTH = 100
"""Of a line of text."""


def size(
    context: typer.Context,
    *,
    within: Annotated[str, typer.Option(help="How much less than the ideal is good enough.")] = "2%",
    judge: Annotated[str, typer.Option(help="What has to be: hits, ttft or both.")] = "both",
    host_gb: Annotated[str, typer.Option(help="GB of host memory that are looked at; 64 is one size.")] = "4-512",
    store_gbps: Annotated[str, typer.Option(help="GB/s to the store that are looked at.")] = "0.25-64",
    finer: Annotated[int, typer.Option(min=1, max=10, help="Steps for each doubling.")] = 1,
    requests: Annotated[int, typer.Option(min=1, max=10**9, help="Only the first N requests.")] = REQUESTS,
    cells: Annotated[Path | None, typer.Option(help="Keep the simulations there, and go on with them.")] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="How many simulations are run at a time.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write a page with the chart there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find sizes for --trace T --model M --accelerator A, and any other option of `stagehold sweep --options`."""
    from stagehold.lab.cell_options import OptionError, value
    from stagehold.lab.sizing import Bar, Grid, Judge, steps
    from stagehold.lab.sizing import size as searched

    if judge not in list(Judge):
        raise BadInput(f"--judge {judge}: expected one of {', '.join(Judge)}")
    try:
        options = {name: value(name, text) for name, text in pairs(context.args).items()}
        grid = Grid(steps("--host-gb", host_gb, finer), steps("--store-gbps", store_gbps, finer))
        if out is not None:
            refuse_overwriting("--out", out, Path(options.get("trace", "")))
        with ExitStack() as stack:
            kept = cells or Path(stack.enter_context(TemporaryDirectory())) / "cells.jsonl"
            found = searched(
                {**options, "requests": requests},
                grid,
                Bar(_share(within), Judge(judge)),
                lambda asked: run_cells(asked, kept, processes, shown=not as_json, option="--cells"),
            )
    except OptionError as error:
        raise BadInput(str(error)) from error
    _tell(found, out, as_json=as_json)
    end(list(found.runs.values()))
    if found.bar.reachable < 1:
        typer.echo("stagehold: the ideal is out of reach; see --within, --host-gb and --store-gbps", err=True)
        raise typer.Exit(1)


def _share(text: str) -> float:
    """`2%` or `2` as 0.02."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text)
    if not found or not float(found[1]) < 100:
        raise BadInput(f"--within {text}: expected per cent below 100, such as 2 or 2%")
    return float(found[1]) / 100


def _tell(found: Sized, out: Path | None, *, as_json: bool) -> None:
    from stagehold.lab.sizing_words import as_json as plain
    from stagehold.lab.sizing_words import assumptions, chart, paragraph

    if out is not None:
        write_out(out, _page(found).encode())
    if as_json:
        typer.echo(orjson.dumps(plain(found)).decode())
        return
    typer.echo(fill(paragraph(found), WIDTH) + "\n")
    for line in chart(found):
        typer.echo(line)
    typer.echo()
    for one in assumptions(found):
        typer.echo(fill(one, WIDTH, subsequent_indent="  "))
    if out is not None:
        typer.echo(f"\npage {out}")


def _page(found: Sized) -> str:
    from stagehold.lab.reports.page import page
    from stagehold.lab.reports.run import as_run
    from stagehold.lab.reports.sized import section

    grid = found.grid
    runs = [
        as_run(f"{grid.host_gb[row]:g} GB, {grid.store_gbps[column]:g} GB/s", run)
        for (row, column), run in sorted(found.runs.items())
    ]
    return page(runs, title="Sizes", extras=[section(found)])
