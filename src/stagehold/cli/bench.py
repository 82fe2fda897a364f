"""`stagehold bench`: what one part costs, measured on this machine, as lines or as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
import typer

app = typer.Typer(help="Measure one part.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("machine")
def machine(*, as_json: AsJson = False) -> None:
    """Cost of one declared step, against a bare method call and against `transitions`; bytes of an instance."""
    from stagehold.lab.bench.machine import bench_machine

    show(bench_machine(), as_json=as_json)


@app.command("lifecycle")
def lifecycle(
    *,
    requests: Annotated[int, typer.Option(min=1, help="Requests of the conversation trace.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Hits against an oracle, waste, staging sizes, and what late writes, lost spans and outages cost."""
    from stagehold.lab.bench.lifecycle import bench_lifecycle

    show(bench_lifecycle(requests), as_json=as_json)


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a bench's figures; tables within them are printed row by row."""
    if as_json:
        typer.echo(orjson.dumps(figures).decode())
        return
    for name, value in figures.items():
        if isinstance(value, list):
            for row in value:
                typer.echo(f"{name}: " + ", ".join(f"{k} {_said(v)}" for k, v in row.items()))
        elif isinstance(value, Mapping):
            typer.echo(f"{name}: " + ", ".join(f"{k} {_said(v)}" for k, v in value.items()))
        else:
            typer.echo(f"{name}: {_said(value)}")


def _said(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
