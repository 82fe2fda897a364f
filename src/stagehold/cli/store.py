"""`stagehold store`: check any store, measure it, and look after a directory of pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput

app = typer.Typer(help="Check, measure and look after stores.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Url = Annotated[str, typer.Argument(help="file:///dir, valkey://host:port/0, s3://bucket, mooncake://host:port, sim:")]
Root = Annotated[Path, typer.Argument(help="The directory of a file store.")]
PageBytes = Annotated[int, typer.Option("--page-bytes", max=1 << 30, help="Bytes of a page body.")]


@app.command("check")
def check(url: Url, *, page_bytes: PageBytes = 65536, as_json: AsJson = False) -> None:
    """Run the conformance kit against the store at URL; exit 1 where a check fails.

    Its pages stay in the store: point it at a directory, database or prefix of its own.
    """
    from stagehold.testing.conformance import check_store

    result = _or_bad_input(lambda: check_store(url, page_bytes=page_bytes))
    if as_json:
        typer.echo(orjson.dumps(result.as_dict()).decode())
    else:
        for found in result.results:
            typer.echo(f"{found.status.value:8}{found.name}" + (f": {found.reason}" if found.reason else ""))
    raise typer.Exit(0 if result.ok else 1)


@app.command("bench")
def bench(
    url: Url,
    *,
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="Size of a page; 64KiB, 1MiB and 4MiB if left out.")
    ] = None,
    batches: Annotated[
        list[int] | None, typer.Option("--batch", min=1, help="Pages in a call; 1, 16 and 64 if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put, get and lookup rates, beside a memory copy and plain new files in the same run."""
    from stagehold.cache.stores.open import size
    from stagehold.lab.bench.stores import BATCHES, SIZES, bench_store, ratios

    def measure() -> dict[str, Any]:
        return bench_store(url, sizes=[size(text) for text in sizes or ()] or SIZES, batches=batches or BATCHES)

    figures = _or_bad_input(measure)
    for line in [orjson.dumps(figures).decode()] if as_json else ratios(figures):
        typer.echo(line)


@app.command("ls")
def ls(root: Root) -> None:
    """List all pages: verdict, body bytes, component, ranks, name, place."""
    from stagehold.cache.stores.inspect import list_pages

    for page in list_pages(_directory(root)):
        claim = page.identity
        said = "-" if claim is None else f"{claim.body_bytes} {claim.layout.numbers()} {claim.name.hex()}"
        typer.echo(f"{page.verdict.name} {said} {page.path}")


@app.command("verify")
def verify(root: Root, *, as_json: AsJson = False) -> None:
    """Check every byte of every page; exit 1 where one is damaged."""
    from stagehold.cache.stores.inspect import verify_pages
    from stagehold.cache.stores.protocol import Verdict

    counts = verify_pages(_directory(root))
    figures = {verdict.name: count for verdict, count in sorted(counts.items())}
    said = ", ".join(f"{count:,} {name}" for name, count in figures.items())
    typer.echo(orjson.dumps(figures).decode() if as_json else said or "no pages")
    raise typer.Exit(0 if set(counts) <= {Verdict.HIT} else 1)


@app.command("gc")
def gc(
    root: Root,
    capacity: Annotated[str, typer.Option("--capacity", help="What the page files may take, such as 10GiB.")],
) -> None:
    """Sweep leftovers and evict page files, least recently used first, down to a capacity."""
    from stagehold.cache.stores.inspect import collect
    from stagehold.cache.stores.open import size

    try:
        wanted = size(capacity)
    except ValueError as error:
        raise BadInput(f"--capacity {capacity!r}: {error}") from error
    evicted = _or_bad_input(lambda: collect(_directory(root), wanted))
    typer.echo(f"{evicted} pages evicted")


def _directory(root: Path) -> Path:
    """The same path, unless it is a URL, of which `Path` has made one slash out of three."""
    if root.parts[:1] == ("file:",):
        raise BadInput(f"{root}: expected the directory alone: /{Path(*root.parts[1:])}")
    return root


def _or_bad_input(action: Callable[[], Any]) -> Any:
    """Run an action; what is wrong with its input becomes one line."""
    try:
        return action()
    except ValueError as error:
        raise BadInput(str(error)) from error
