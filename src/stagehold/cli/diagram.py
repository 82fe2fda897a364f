"""`stagehold diagram`: write the machines' pages, say which are stale, or make the one page for a browser."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from stagehold.cli.errors import BadInput, refuse_overwriting

FOLDER = Path("docs") / "machines"


def diagram(
    folder: Annotated[Path, typer.Option(help="Where the pages lie.")] = FOLDER,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a page is stale.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page here, nothing else.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw pictures with Graphviz into here, nothing else.")] = None,
    log: Annotated[Path | None, typer.Option(help="Audit log, for heat and timelines in either.")] = None,
) -> None:
    """Write Mermaid, DOT and Markdown pages of every declared machine."""
    if sum((check, html is not None, svg is not None)) > 1:
        raise BadInput("expected one of --check, --html and --svg, each of which does nothing else")
    if html is not None:
        refuse_overwriting("--html", html, log)
        _write_page(html, log)
    elif svg is not None:
        _write_pictures(svg, log)
    elif log is not None:
        raise BadInput("--log: expected --html or --svg beside it, which show its heat")
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


def _write_pictures(folder: Path, log: Path | None) -> None:
    from stagehold.machines.audit_read import BadLogError
    from stagehold.machines.diagram import write_svgs
    from stagehold.machines.dot import NotDrawn

    program = which("dot")
    try:
        written = write_svgs(folder, Path(program) if program else None, log)
    except BadLogError as error:
        raise BadInput(str(error)) from error
    if isinstance(written, NotDrawn):
        raise BadInput(f"--svg: {written.value}")
    for path in written:
        typer.echo(path)


def _refuse_stale(folder: Path) -> None:
    from stagehold.machines.diagram import stale

    names = stale(folder)
    remedy = "stagehold diagram" if folder == FOLDER else f"stagehold diagram --folder {folder}"
    for name in names:
        typer.echo(f"stale: {folder / name}; run `{remedy}`", err=True)
    if names:
        raise typer.Exit(1)


def _write_folder(folder: Path) -> None:
    from stagehold.machines.diagram import write_all

    for path in write_all(folder):
        typer.echo(path)
