"""`stagehold machines`: what is proved about the declared tables, without running an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

if TYPE_CHECKING:
    from stagehold.machines.explorer import WorldResult

app = typer.Typer(help="Check the declared machines.", no_args_is_help=True)


@app.callback()
def machines() -> None:
    """Check the declared machines."""


@app.command("check")
def check(
    *,
    full: Annotated[bool, typer.Option("--full", help="Search the large worlds, too; about an hour.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every declaration, compare it with `transitions`, and search the product; exit 1 on any finding."""
    from stagehold.machines.explorer import table_check

    report = table_check(full=full, progress=None if as_json else _world)
    if as_json:
        typer.echo(orjson.dumps(report).decode())
    else:
        _show(report)
    if not report["holds"]:
        raise typer.Exit(1)


def _world(result: WorldResult) -> None:
    verdict = "holds" if result.holds else "DOES NOT HOLD"
    typer.echo(f"world {result.name}: {result.states:,} situations, {verdict}")
    for step in result.counterexample:
        typer.echo(f"    {step}")


def _show(report: dict[str, Any]) -> None:
    for machine in report["machines"]:
        bound = machine["step_bound"]
        ends = "lives as long as the engine" if bound is None else f"at most {bound:,} steps"
        typer.echo(
            f"machine {machine['name']}: {machine['states']} states, {machine['rows']} rows (`any` spelt out), {ends}"
        )
        for problem in machine["problems"]:
            typer.echo(f"    {problem}")
    typer.echo(f"compared with transitions: {report['oracle_cells']:,} cells, {report['oracle_differences']} differ")
    found = ("deadlocks", "leaks", "invariant_breaches", "unfair_cycles", "cannot_end")
    figures = ", ".join(f"{report[name]} {name.replace('_', ' ')}" for name in found)
    typer.echo(f"product: {report['product_states']:,} situations, {figures}")
