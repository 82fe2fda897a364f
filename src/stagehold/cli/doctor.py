"""`stagehold doctor`: whether this machine, this configuration and this store will do, and what to do where not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from stagehold.cli.config import tree


def doctor(
    *,
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file of options.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="One option, as limits.tries=5; repeated.")] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="URL of a store; else that of the configuration.")
    ] = None,
    page_bytes: Annotated[
        int, typer.Option(min=1, max=1 << 30, help="Bytes of a test page, where no configuration says it.")
    ] = 1 << 16,
    ranks: Annotated[int, typer.Option(min=1, max=1024, help="Ranks that run on this machine.")] = 1,
    rank: Annotated[list[Path] | None, typer.Option(help="The file of another rank; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check machine, configuration and store; exit 1 where something is wrong, with what to do about it.

    The store keeps 16 test pages under random names, fewer where those would be more than 256 MiB.
    """
    from stagehold.operate.doctor.examine import Patient, examine

    patient = Patient(config, tree(sets or []), store, page_bytes, ranks, tuple(rank or ()))
    checks = []
    for check in examine(patient):
        checks.append(check)
        if not as_json:
            typer.echo(check.line())
    failed = [check for check in checks if not check.ok]
    if as_json:
        found = {"ok": not failed, "checks": [asdict(check) for check in checks]}
        typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(f"{len(checks)} checks, {len(failed)} failed")
        for check in failed:
            typer.echo(f"stagehold: {check.detail}; {check.fix}", err=True)
    raise typer.Exit(int(bool(failed)))
