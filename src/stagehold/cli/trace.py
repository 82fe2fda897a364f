"""`stagehold trace`: what a request trace holds, and the same trace in this project's own format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting

if TYPE_CHECKING:
    from stagehold.lab.stats import Spread, TraceStats
    from stagehold.lab.traces import Format

app = typer.Typer(help="Look at request traces, and convert them.", no_args_is_help=True)

FORMATS = "mooncake, agentic, lmcache, azure or stagehold; known by content if left out."
SHIPPED_NAMES = "conversation, synthetic, agentic or miniswe"
PathOption = Annotated[
    Path, typer.Argument(help=f"Trace file, plain, gzip or zstd, or a trace that is shipped: {SHIPPED_NAMES}.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option(help=f"Trace file of any format, or a trace that is shipped: {SHIPPED_NAMES}; by default the first."),
]
FormatOption = Annotated[str | None, typer.Option("--format", help=FORMATS)]
RequestsOption = Annotated[int | None, typer.Option(min=1, help="Only the first N requests.")]


@app.callback()
def trace() -> None:
    """Look at request traces, and convert them."""


@app.command("stats")
def stats(
    path: PathOption,
    *,
    of: FormatOption = None,
    requests: RequestsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count requests and lengths, and say what could be reused, at what distance, and how soon it is wanted."""
    from stagehold.lab.stats import trace_stats
    from stagehold.lab.traces import read_trace

    path = trace_file(path)
    with told_in_a_line():
        found = trace_stats(islice(read_trace(path, chosen_format(of)), requests), path)
    if as_json:
        typer.echo(orjson.dumps(found.as_json()).decode())
        return
    for name, value in _rows(found):
        typer.echo(f"{name:<32}{value}")


@app.command("convert")
def convert(
    path: PathOption,
    out: Annotated[Path, typer.Argument(help="Where to write; gzip where the name ends in .gz.")],
    *,
    of: FormatOption = None,
    requests: RequestsOption = None,
    session_every: Annotated[
        float | None, typer.Option(min=0, max=10**9, help="Begin a session every so many seconds.")
    ] = None,
) -> None:
    """Write a trace in the format `stagehold`, whose lines docs/lab.md describes."""
    from stagehold.lab.readers import own
    from stagehold.lab.traces import read_trace, respaced

    path = trace_file(path)
    refuse_overwriting("OUT", out, path)
    if out.suffix == ".zst":
        raise BadInput(f"OUT {out}: expected a name that ends in .jsonl or .jsonl.gz; zstd is read, not written")
    with told_in_a_line():
        found = islice(read_trace(path, chosen_format(of)), requests)
        chosen = found if session_every is None else respaced(found, round(1000 * session_every))
        written = own.write(chosen, out)
    typer.echo(f"{written:,} requests written to {out}")


def trace_file(named: Path | None) -> Path:
    """The file of that name where there is one, else the trace that is shipped under it, or the first where none is."""
    from stagehold.lab.traces import SHIPPED, shipped_trace

    if named is None:
        return shipped_trace()
    return shipped_trace(str(named)) if str(named) in SHIPPED and not named.exists() else named


def chosen_format(name: str | None) -> Format | None:
    """The format of that name; None for None."""
    from stagehold.lab.traces import Format

    if name is None:
        return None
    if name not in list(Format):
        raise BadInput(f"--format {name}: expected one of {', '.join(Format)}")
    return Format(name)


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """A trace that cannot be read is bad input."""
    from stagehold.lab.traces import TraceError

    try:
        yield
    except TraceError as error:
        raise BadInput(str(error)) from error


def _rows(found: TraceStats) -> Iterator[tuple[str, str]]:
    def share(part: float, whole: float) -> str:
        return f"{100 * part / whole:.1f} %" if whole else "none"

    yield "requests", f"{found.requests:,} in {found.sessions:,} sessions"
    yield "time", f"{found.seconds:,.0f} s, {found.distinct_arrivals:,} moments, up to {found.most_at_once} at once"
    yield "prompt tokens", _spread(found.prompt_tokens)
    yield "output tokens", _spread(found.output_tokens)
    if not found.working_set_tokens:
        yield "reuse", "no prompt has a block with an id, so nothing is known to return"
        return
    hits = share(found.ideal_hit_tokens, found.prompt_tokens.total)
    yield "ideal hit tokens", f"{found.ideal_hit_tokens:,}, {hits} of the prompts"
    yield "tokens used between two uses", _spread(found.reuse_distance_tokens, total=False)
    yield "working set", f"{found.working_set_tokens:,} tokens in whole blocks of {found.block_tokens}"
    for size, rate in found.lru_hit_rates.items():
        yield f"  a cache of {size} % of it hits", f"{100 * rate:.1f} % of the prompts"
    yield "requests with a reusable prefix", f"{found.requests_with_a_hit:,}"
    for seconds, count in found.produced_within.items():
        told = f"{count:,}, {share(count, found.requests_with_a_hit)} of them"
        yield f"  produced within {seconds} s before", told


def _spread(found: Spread, *, total: bool = True) -> str:
    whole = f"{found.total:,} in all, " if total else ""
    tail = f"half up to {found.p50:,}, 90 % {found.p90:,}, 99 % {found.p99:,}, most {found.most:,}"
    return f"{whole}mean {found.mean:,.0f}, {tail}"
