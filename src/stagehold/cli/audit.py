"""`stagehold audit`: whether a log is sound, and where two logs part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagehold.cli.errors import BadInput

app = typer.Typer(help="Read audit logs.", no_args_is_help=True)


@app.command("verify")
def verify(log: Annotated[Path, typer.Argument(help="Audit log, JSON lines.")]) -> None:
    """Check chain, rows, births, continuity and tokens; exit 1 at the first fault, which is named."""
    from stagehold.machines import audit

    found = audit.verify(log)
    if found.fault is not None:
        typer.echo(f"stagehold: {found.fault}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{log}: {found.blocks:,} blocks, {found.records:,} records, {found.instances:,} instances, sound")


@app.command("diff")
def diff(
    first: Annotated[Path, typer.Argument(help="The log that is taken to be right.")],
    second: Annotated[Path, typer.Argument(help="The log that is held against it.")],
) -> None:
    """Print the first difference of two logs and exit 1; print nothing and exit 0 if they tell the same."""
    from stagehold.machines import audit_diff
    from stagehold.machines.audit_read import BadLogError

    try:
        difference = audit_diff.diff(first, second)
    except BadLogError as error:
        raise BadInput(str(error)) from error
    if difference is not None:
        typer.echo(str(difference))
        raise typer.Exit(1)
