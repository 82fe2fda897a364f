"""`stagehold sweep`: a simulation for every combination of some options' values, kept in a file that can go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out
from stagehold.cli.replay import progress_bar

if TYPE_CHECKING:
    from stagehold.lab.cells import Cell
    from stagehold.lab.sweeps import Sweep

ANY_OPTION = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Settings of a command whose further options are read by `pairs`."""


def sweep(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(help="One line a cell; cells that stand there are not run again.")] = Path(
        "sweep.jsonl"
    ),
    processes: Annotated[int, typer.Option(min=1, max=256, help="How many cells are run at a time.")] = 1,
    page: Annotated[Path | None, typer.Option("--report", help="Write a page about all cells there.")] = None,
    listed: Annotated[bool, typer.Option("--options", help="List the options that can be swept, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate every combination: --store-gbps 1,5,20 --mode buffer_only,cache, and any option of `--options`."""
    from stagehold.lab.cell_options import OptionError, values
    from stagehold.lab.reports.run import RunError
    from stagehold.lab.sweeps import sweep as combined

    if listed:
        _list_options()
        return
    try:
        plan = combined({name: values(name, text) for name, text in pairs(context.args).items()})
        records = run_cells(plan.cells, out, processes, shown=not as_json)
    except (OptionError, RunError) as error:
        raise BadInput(str(error)) from error
    if page is not None:
        _write_page(page, out, records)
    if as_json:
        cells = [{"name": name, **found} for name, found in zip(plan.names(), records, strict=True)]
        typer.echo(orjson.dumps({"varied": plan.varied, "cells": cells}).decode())
    else:
        _show(plan, records)
        typer.echo(f"{len(records)} cells in {out}" + (f", page {page}" if page is not None else ""))
    end(records)


def pairs(words: Sequence[str]) -> dict[str, str]:
    """`--name value` and `--name=value` as texts by name; each name once."""
    from stagehold.lab.cell_options import known_as

    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, text = word.partition("=")
        if not name.startswith("--"):
            raise BadInput(f"{word}: expected an option such as --store-gbps 1,5,20")
        text = text if equals else next(rest, "")
        if not text:
            raise BadInput(f"{name}: expected a value, or several with commas between them")
        name = known_as(name.removeprefix("--").replace("-", "_"))
        if name in found:
            raise BadInput(f"{word}: expected once, with commas between its values")
        found[name] = text
    return found


def run_cells(
    cells: Sequence[Cell], out: Path, processes: int, *, shown: bool, option: str = "--out"
) -> list[dict[str, Any]]:
    """The records of all cells in their order, with a bar where a person sees it; what cannot be run is bad input.

    `option` is the one that named `out`.
    """
    from stagehold.lab.cells import run_all

    for cell in cells:
        refuse_overwriting(option, out, cell.path)
    try:
        with cannot_be_run(), progress_bar(shown=shown) as progress:
            return run_all(cells, out, processes, None if progress is None else lambda done, of, _: progress(done, of))
    except BrokenPipeError:
        raise  # nobody sees the bar
    except OSError as error:
        raise BadInput(f"{error.filename or out}: {error.strerror or error}") from error


@contextmanager
def cannot_be_run() -> Iterator[None]:
    """A cell that cannot be simulated, or a file that holds no cells, is bad input; a worker that is gone is told."""
    from concurrent.futures.process import BrokenProcessPool

    from pydantic import ValidationError

    from stagehold.lab.clock import StoreUnusable
    from stagehold.lab.simulate import Stalled

    try:
        yield
    except ValidationError:
        raise  # told in a line by the command itself
    except BrokenProcessPool as error:
        typer.echo(
            "stagehold: a worker was ended from outside, for want of memory perhaps; what is done is kept", err=True
        )
        raise typer.Exit(1) from error
    except (ValueError, StoreUnusable, Stalled) as error:
        raise BadInput(str(error)) from error


def end(records: Sequence[Mapping[str, Any]]) -> None:
    """Say what must not be in any run, and exit 1 where there is any."""
    found = [f"{found}, in {record['cell']}" for record in records for found in record["faults"]]
    for fault in found:
        typer.echo(f"stagehold: {fault}", err=True)
    if found:
        raise typer.Exit(1)


def _write_page(page: Path, out: Path, records: Sequence[Mapping[str, Any]]) -> None:
    from stagehold.lab.reports.page import page as whole
    from stagehold.lab.reports.swept import extras, runs_of

    refuse_overwriting("--report", page, out)
    runs = runs_of(records, str(out))
    write_out(page, whole(runs, title="Sweep", extras=extras(runs)).encode())


def _list_options() -> None:
    from stagehold.lab.cell_options import LIMITS, OWN, SETTINGS, dashed

    for name, (_, told) in OWN.items():
        typer.echo(f"{dashed(name):<32}{told}")
    for name, setting in SETTINGS.items():
        typer.echo(f"{dashed(name):<32}{setting.description} ({setting.default})")
    for name, limit in LIMITS.items():
        typer.echo(f"{dashed(name):<32}a limit of the engine ({limit.default})")


def _show(plan: Sweep, records: Sequence[Mapping[str, Any]]) -> None:
    """A line for each cell; ratios are to the first one."""
    from stagehold.lab.cell_options import told

    rows = [[*plan.varied, "hits of ideal", "x first", "TTFT p50 ms", "x first", "p95 ms", "GB read", "written"]]
    rows += [
        [*(told(name, chosen[name]) for name in plan.varied), *_figures(one, records[0])]
        for chosen, one in zip(plan.settings, records, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


def _figures(one: Mapping[str, Any], first: Mapping[str, Any]) -> Iterator[str]:
    from stagehold.lab.reports.sentences import share

    yield share(_hits(one), one["ideal_hit_tokens"])
    yield _ratio(_hits(one), _hits(first))
    yield f"{one['ttft_ms']['p50']:,.0f}"
    yield _ratio(one["ttft_ms"]["p50"], first["ttft_ms"]["p50"])
    yield f"{one['ttft_ms']['p95']:,.0f}"
    yield f"{one['read_bytes'] / 1e9:,.1f}"
    yield f"{one['written_bytes'] / 1e9:,.1f}"


def _ratio(one: float, first: float) -> str:
    """Where the first is nothing, there is no ratio to it."""
    return f"{one / first:.2f}" if first else "-"


def _hits(record: Mapping[str, Any]) -> int:
    return int(record["device_hit_tokens"] + record["store_hit_tokens"])
