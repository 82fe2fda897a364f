"""`stagehold compare`: traces under every policy, in both modes, over a slow and a fast store, and who is ahead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out
from stagehold.cli.sweep import end, run_cells

if TYPE_CHECKING:
    from stagehold.lab.compare import Finding, Row

DEFAULT = "conversation,synthetic,agentic,miniswe"


def compare(
    *,
    out: Annotated[Path, typer.Option(help="One line a cell; cells that stand there are not run again.")] = Path(
        "compare.jsonl"
    ),
    traces: Annotated[str, typer.Option(help="Shipped traces, with commas between them.")] = DEFAULT,
    trace: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: a trace from a file, instead of or beside the shipped ones.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="The first N of each trace; by default 120 to 600, as the page says.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="How many cells are run at a time.")] = 1,
    page: Annotated[Path | None, typer.Option("--markdown", help="Write the table there, as Markdown.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a claim is broken.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare policies at equal memory; the same options give the same table, however many processes run it."""
    from stagehold.lab.cells import Cell
    from stagehold.lab.compare import cells_of, claims, rows

    chosen = _traces(traces, trace or [])
    try:
        table = rows(chosen, requests=requests)
    except ValueError as error:
        raise BadInput(str(error)) from error
    cells: list[Cell] = cells_of(table)
    found = run_cells(cells, out, processes, shown=not as_json)
    records = {cell.key(): one for cell, one in zip(cells, found, strict=True)}
    findings = claims(table, records)
    if page is not None:
        from stagehold.lab.compare_page import markdown

        refuse_overwriting("--markdown", page, out)
        write_out(page, markdown(table, records, findings, _command(traces, trace or [], requests)).encode())
    if as_json:
        told = [{"claim": f.claim, "holds": f.holds, "says": f.says, "losers": f.losers} for f in findings]
        typer.echo(orjson.dumps({"claims": told, "cells": found}).decode())
    else:
        _show(table, records, findings)
        typer.echo(f"{len(found)} cells in {out}" + (f", page {page}" if page is not None else ""))
    end(found)
    if check and not all(one.holds for one in findings):
        raise typer.Exit(1)


def _traces(named: str, given: Sequence[str]) -> dict[str, Path | None]:
    """Traces by name, with their files where they are not shipped."""
    from stagehold.lab.traces import SHIPPED

    found: dict[str, Path | None] = {name: None for name in named.split(",") if name}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise BadInput(f"--trace {text}: expected NAME=PATH")
        if name in found or name in SHIPPED:
            raise BadInput(f"--trace {text}: expected a name of its own, since cells are known by it")
        found[name] = Path(path)
    if not found:
        raise BadInput("--traces: expected at least one trace")
    return found


def _command(traces: str, given: Sequence[str], requests: int | None) -> str:
    """What gives the same table again, files by their names."""
    words = ["stagehold compare"]
    words += [] if traces == DEFAULT else [f"--traces {traces}"]
    words += [f"--trace {name}={Path(path).name}" for name, _, path in (text.partition("=") for text in given)]
    words += [] if requests is None else [f"--requests {requests}"]
    return " ".join([*words, "--markdown PAGE"])


def _show(table: Sequence[Row], records: dict[str, dict[str, object]], findings: Sequence[Finding]) -> None:
    """A line for each policy of each row, then the claims and who breaks them."""
    from stagehold.lab.compare import HEADS, NUMBERS_FROM, lines

    rows = [HEADS, *lines(table, records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.rjust(width) if at >= NUMBERS_FROM else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells))
    for one in findings:
        typer.echo(f"{'holds ' if one.holds else 'BROKEN'}  {one.claim} ({one.says})")
        for loser in one.losers:
            typer.echo(f"        {loser}")
