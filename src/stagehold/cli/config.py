"""`stagehold config`: what an engine would start with, where each option comes from, and what follows from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput, write_out

if TYPE_CHECKING:
    from stagehold.operate.settings import Configuration

app = typer.Typer(help="Show, check and list the options of an engine.", no_args_is_help=True)
File = Annotated[Path | None, typer.Option("--config", help="A TOML file of options.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="One option, as limits.fetch_limit=256; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PAGE = Path("docs") / "configuration.md"


@app.command("show")
def show(*, config: File = None, sets: Sets = None, as_json: AsJson = False) -> None:
    """Print every option with its value and its source, and the limits that follow with their arithmetic."""
    from stagehold.operate.derived import derived

    found = loaded(config, sets)
    if as_json:
        typer.echo(orjson.dumps(_as_json(found), option=orjson.OPT_INDENT_2).decode())
        return
    for name, value in _options(found).items():
        typer.echo(f"{name} = {_said(value)}  ({_origin(name, found.origins)})")
    typer.echo("")
    for one in derived(found):
        typer.echo(one.line())


@app.command("check")
def check(*, config: File = None, sets: Sets = None) -> None:
    """Exit 2 with a line for each thing that is wrong; say what was read otherwise."""
    found = loaded(config, sets)
    typer.echo(f"{config or 'no file'}: {len(found.origins)} options set, nothing wrong")


@app.command("reference")
def reference(
    page: Annotated[Path, typer.Argument(help="Where the page lies.")] = PAGE,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if the page is stale.")] = False,
) -> None:
    """Write the page of all options, or say whether it is what the models say."""
    from stagehold.operate import reference as made

    publish(page, made.page(), "stagehold config reference", check=check)


def publish(page: Path, text: str, remedy: str, *, check: bool) -> None:
    """Write a generated page, or exit 1 with its remedy where it is stale."""
    if not check:
        write_out(page, text.encode())
        typer.echo(page)
    elif not page.is_file() or page.read_text(encoding="utf-8") != text:
        typer.echo(f"stale: {page}; run `{remedy}`", err=True)
        raise typer.Exit(1)


def loaded(config: Path | None, sets: list[str] | None) -> Configuration:
    """The configuration of these arguments; what is wrong with it is bad input."""
    from stagehold.operate.given import ConfigurationError
    from stagehold.operate.settings import load

    try:
        return load(config, tree(sets or []))
    except ConfigurationError as error:
        raise BadInput(str(error)) from error


def tree(sets: list[str]) -> dict[str, Any]:
    """`limits.fetch_limit=256` as a tree of values; a value is read as TOML where it is TOML, and is text otherwise."""
    from stagehold.operate.settings import shown

    found: dict[str, Any] = {}
    for one in sets:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {shown(one)}: expected NAME=VALUE")
        place, (*outer, last) = found, name.split(".")
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise BadInput(f"--set {one}: {part} was set to a value before")
        place[last] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _options(found: Configuration) -> dict[str, Any]:
    """Every option by its dotted name; what was derived in place of what was not set."""
    from stagehold.operate.settings import shown

    plain = found.engine.model_dump()
    limits = plain.pop("limits")
    return {**plain, "store": shown(found.store), **{f"limits.{name}": value for name, value in limits.items()}}


def _origin(name: str, origins: Mapping[str, str]) -> str:
    """Where an option was set; the size of staging may have been set by another name."""
    by = [other for other in ("staging_ratio", "staging_bytes") if name == "staging_pages" and other in origins]
    return f"{origins[by[0]]}: {by[0]}" if by else origins.get(name, "default")


def _said(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return "none" if value is None else str(value)


def _as_json(found: Configuration) -> dict[str, Any]:
    from stagehold.operate.derived import derived

    rows: Iterator[dict[str, Any]] = (
        {"name": one.name, "value": one.value, "unit": one.unit, "formula": one.formula, "arithmetic": one.arithmetic}
        for one in derived(found)
    )
    return {"options": _options(found), "origins": dict(found.origins), "derived": list(rows)}
