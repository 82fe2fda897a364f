"""`stagehold diagram`: write the machines' pages, say which are stale, or make the one page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stagehold.cli.errors import BadInput

FOLDER = Path("docs") / "machines"


def diagram(
    folder: Annotated[Path, typer.Option(help="Where the pages lie.")] = FOLDER,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a page is stale.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page here, nothing else.")] = None,
    log: Annotated[Path | None, typer.Option(help="Audit log, for heat and timelines on that page.")] = None,
) -> None:
    """Write Mermaid, DOT and Markdown pages of every declared machine."""
    if html is not None:
        _write_page(html, log)
    elif log is not None:
        raise BadInput("--log: expected --html beside it; heat and timelines are parts of that page")
    elif check:
        _refuse_stale(folder)
    else:
        _write_folder(folder)


def _write_page(html: Path, log: Path | None) -> None:
    from stagehold.machines.audit_read import BadLogError
    from stagehold.machines.diagram import write_html

    try:
        write_html(html, log)
    except BadLogError as error:
        raise BadInput(str(error)) from error
    typer.echo(html)


def _refuse_stale(folder: Path) -> None:
    from stagehold.machines.diagram import stale

    names = stale(folder)
    for name in names:
        typer.echo(f"stale: {folder / name}; run `stagehold diagram`", err=True)
    if names:
        raise typer.Exit(1)


def _write_folder(folder: Path) -> None:
    from stagehold.machines.diagram import write_all

    for path in write_all(folder):
        typer.echo(path)
