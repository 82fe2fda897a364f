"""`stagehold metrics`: the page that lists every statistic of an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagehold.cli.config import publish
from stagehold.cli.errors import BadInput

app = typer.Typer(help="List every statistic of an engine.", no_args_is_help=True)
PAGE = Path("docs") / "metrics.md"


@app.callback()
def metrics() -> None:
    """List every statistic of an engine."""


@app.command("reference")
def reference(
    page: Annotated[Path, typer.Argument(help="Where the page lies.")] = PAGE,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if the page is stale.")] = False,
) -> None:
    """Write the page of all metrics, or say whether it is what the measures say."""
    try:
        from stagehold.operate import metrics as made
    except ImportError as error:
        raise BadInput(
            f"metrics need the package 'prometheus_client' ({error}): pip install 'stagehold[metrics]'"
        ) from error
    publish(page, made.page(), "stagehold metrics reference", check=check)
