"""`stagehold top` and `stagehold watch`: what an engine does, as it happens, in a terminal or on a page."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Group

    from stagehold.operate.live.sources import Source
    from stagehold.operate.web import Place

TOKEN = "STAGEHOLD_TOKEN"  # noqa: S105 - the name of a variable
"""Where the token is taken from: an argument could be read by everybody on the machine."""

Of = Annotated[
    str, typer.Argument(help="An audit log, or the http:// address that an engine serves.", metavar="SOURCE")
]


def top(
    source: Of,
    *,
    seconds: Annotated[float, typer.Option(help="From view to view.", min=0.05)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one view and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one view as a JSON object and end.")] = False,
) -> None:
    """Show states, pools, flows, waiting requests and what they met, until interrupted. Reads, and changes nothing."""
    found = _source(source)
    if once or as_json:
        view = _caught_up(found)
        if as_json:
            typer.echo(orjson.dumps(view).decode())
        else:
            from rich.console import Console

            Console().print(_frame(view))
        if view["trouble"]:
            typer.echo(_plain(f"stagehold: {view['name']}: {view['trouble']}"), err=True)
            raise typer.Exit(1)
        return
    from rich.live import Live

    try:
        with Live(_frame(found.view()), screen=True, auto_refresh=False) as live:
            while True:
                due = time.monotonic() + seconds
                live.update(_frame(found.view()), refresh=True)
                time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        return


def watch(
    source: Of,
    *,
    http: Annotated[
        str, typer.Option(help="Where to serve the page: HOST:PORT; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    seconds: Annotated[float, typer.Option(help="From view to view.", min=0.05)] = 1.0,
) -> None:
    """Serve the same as one page, to this machine alone; to others with a token in the variable STAGEHOLD_TOKEN."""
    from stagehold.operate.live import serve

    served = serve(_source(source), _place(http), seconds=seconds)
    typer.echo(f"{served.url}/")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return
    finally:
        served.close()


def _place(http: str) -> Place:
    from stagehold.operate.web import place

    try:
        return place(http, os.environ.get(TOKEN) or None)
    except ValueError as error:
        raise BadInput(f"--http {error} (a token is taken from the variable {TOKEN})") from error


def _source(text: str) -> Source:
    from stagehold.operate.live import LogSource, PageSource

    if text.lower().startswith(("http://", "https://")):
        try:
            return PageSource(text, os.environ.get(TOKEN) or None)
        except ValueError as error:
            raise BadInput(str(error)) from error
    if "://" in text:
        raise BadInput(f"{text}: expected an audit log or an http:// address")
    path = Path(text)
    if path.is_dir():
        raise BadInput(f"{text}: expected an audit log, found a directory")
    if path.exists() and not path.is_file():
        raise BadInput(f"{text}: expected an audit log, found a pipe or a device")
    return LogSource(path)


def _caught_up(source: Source) -> dict[str, Any]:
    """The view once all of a log has been read."""
    view = source.view()
    while view.get("behind") and not view["trouble"]:
        before, view = view["behind"], source.view()
        if view["behind"] >= before:
            break  # what is left is half a line
    return view


def _frame(view: dict[str, Any]) -> Group:
    """One view as tables; whoever serves a page may serve anything."""
    try:
        return frame(view)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{view['name']}: what is served there is no view ({error!r})") from error


def _plain(text: str) -> str:
    """Without what a terminal would obey: a request is named by whoever sent it."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def frame(view: dict[str, Any]) -> Group:
    """One view as tables."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.text import Text

    store = view["store"]
    behind = f"; {view['behind']:,} bytes still to be read" if view.get("behind") else ""
    head = f"{view['name']}: tick {view['tick']:,}, {view['blocks']:,} blocks; store {store['link']}, "
    head += f"breaker {store['breaker']}{behind}"
    states = [
        (machine, state, count)
        for machine, counts in view["states"].items()
        for state, count in counts.items()
        if count
    ]
    tokens = view["tokens"]
    booked = [("queried", tokens["queried"]), ("spliced", tokens["spliced"])]
    booked += [(f"lost: {why}", lost) for why, lost in tokens["lost"].items()]
    moment = view.get("moment") or {}
    pools = [(name, used, of, _bar(used, of)) for name, (used, of) in moment.get("pools", {}).items()]
    side_by_side = Columns([
        _table("states", ("machine", "state", "now"), states),
        _table("tokens", ("", "tokens"), booked),
        _table("pools", ("pool", "pages", "of", ""), pools),
        _table("why prefixes were not used", ("cause", "times"), list(view["troubles"].items())[:10]),
    ])  # fmt: skip
    slow = [tuple(one.values()) for one in view["slow"][:10]]
    recent = [(one["tick"], one["request"], one["verdict"], one["sentence"]) for one in view["recent"][:10]]
    return Group(
        Text(_plain(head), style="bold"),
        Text(_plain(view["trouble"]), style="bold red"),
        side_by_side,
        _table("waiting longest", ("request", "state", "ticks", "in state", "launches"), slow),
        _table("last of them", ("tick", "request", "", "why"), recent),
    )


def _bar(used: int, of: int, width: int = 20) -> str:
    full = round(width * used / of) if of else 0
    return "█" * min(width, full) + "·" * (width - min(width, full))


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for head in heads:
        made.add_column(head)
    for row in rows:
        made.add_row(*(f"{one:,}" if isinstance(one, int) else escape(_plain(str(one))) for one in row))
    return made
