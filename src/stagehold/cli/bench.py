"""`stagehold bench`: what one part costs, measured on this machine, as lines or as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting

app = typer.Typer(help="Measure one part.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("machine")
def machine(
    *,
    log: Annotated[Path | None, typer.Option(help="Audit log whose first 10,000 steps are taken.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep the mix of --log in this file; measure nothing.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cost of one declared step, against a bare method call and against `transitions`; bytes of an instance."""
    from stagehold.lab.bench.machine import bench_machine
    from stagehold.lab.bench.mix import MixError, recorded_mix, write_mix
    from stagehold.machines.audit_read import BadLogError

    if log is None and keep is not None:
        raise BadInput("--keep: expected --log beside it, which it is made from")
    if keep is not None:
        refuse_overwriting("--keep", keep, log)
    try:
        mix = recorded_mix(log) if log is not None else None
    except (BadLogError, MixError) as error:
        raise BadInput(str(error)) from error
    if mix is not None and keep is not None:
        write_mix(keep, mix)
        return
    show(bench_machine(mix), as_json=as_json)


@app.command("tick")
def tick(*, as_json: AsJson = False) -> None:
    """Cost of idle and of busy ticks, and of one visit from select to commit."""
    from stagehold.lab.bench.tick import bench_tick

    show(bench_tick(), as_json=as_json)


@app.command("ranks")
def ranks(
    *,
    exchanges: Annotated[int, typer.Option(min=1, max=10**6, help="Exchanges, and as many bare all-reduces.")] = 2000,
    size: Annotated[
        list[int] | None, typer.Option(min=2, max=64, help="Ranks, a process each; may be repeated. 2 and 4.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cost of a tick's exchange between processes, against a bare all-reduce of the same size."""
    from stagehold.lab.bench.ranks import SIZES, bench_ranks

    show(bench_ranks(exchanges, tuple(size or SIZES)), as_json=as_json)


@app.command("lifecycle")
def lifecycle(
    *,
    requests: Annotated[int, typer.Option(min=1, help="Requests of the conversation trace.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Hits against an oracle, waste, staging sizes, and what late writes, lost spans and outages cost."""
    from stagehold.lab.bench.lifecycle import bench_lifecycle

    show(bench_lifecycle(requests), as_json=as_json)


@app.command("records")
def records(
    *,
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of the conversation trace, as crowded as in `make run`.")
    ] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the least of each figure counts.")] = 5,
    as_json: AsJson = False,
) -> None:
    """What the audit's records and blocks cost a replay, as a share of its processor time."""
    from stagehold.lab.bench.records import bench_records

    show(bench_records(requests, rounds), as_json=as_json)


@app.command("log")
def log(
    *,
    records: Annotated[int, typer.Option(min=1, help="Records of the log that is written for it.")] = 1_000_000,
    as_json: AsJson = False,
) -> None:
    """Time to verify and to replay a long audit log, beside reading its lines."""
    from stagehold.lab.bench.long_log import bench_log

    show(bench_log(records), as_json=as_json)


@app.command("tree")
def tree(
    *,
    turns: Annotated[list[int] | None, typer.Option(min=1, help="Turns in the tree; may be repeated. 10,000.")] = None,
    page: Annotated[list[int] | None, typer.Option(min=1, help="Tokens in a page; may be repeated. 64.")] = None,
    length: Annotated[
        list[int] | None, typer.Option(min=1, help="Tokens of a probe; may be repeated. All four that there are.")
    ] = None,
    reps: Annotated[int, typer.Option(min=1, help="Repetitions of each operation.")] = 100,
    peer: Annotated[Path | None, typer.Option(help="A Python whose environment has SGLang, to run beside.")] = None,
    as_json: AsJson = False,
) -> None:
    """Match, insert, lock and evict in trees of many turns, beside SGLang's caches if there are any."""
    from stagehold.cache.errors import CacheRefused
    from stagehold.lab.bench.tree import bench_tree
    from stagehold.lab.bench.tree_workload import LENGTHS

    if peer is not None and not peer.is_file():
        raise BadInput(f"--peer {peer}: expected a Python interpreter")
    for tokens in length or ():
        if tokens not in LENGTHS:
            raise BadInput(f"--length {tokens}: expected one of {', '.join(map(str, LENGTHS))}")
    program = None if peer is None else str(peer)
    try:
        figures = bench_tree(turns or [10_000], page or [64], length or LENGTHS, reps, peer=program)
    except CacheRefused as error:
        raise BadInput(f"--page: {error}") from error
    show(figures, as_json=as_json)


@app.command("copy")
def copy(
    *,
    page_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a page.")] = 1 << 20,
    parts: Annotated[int, typer.Option(min=1, help="Pieces of a page in a layer-first pool.")] = 32,
    pages: Annotated[int, typer.Option(min=1, help="Pages in one copy.")] = 64,
    device: Annotated[str, typer.Option(help="Where the pool lies: cpu, cuda, cuda:1, or auto.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Gather and scatter between device pool and staging, against a plain copy, one thread."""
    from stagehold.kernels.device import usable_device
    from stagehold.lab.bench.page_copies import bench_copy, ratios

    if page_bytes % parts:
        raise BadInput(f"--parts {parts}: expected a divisor of --page-bytes {page_bytes}")
    try:
        where = usable_device(device)
    except (ValueError, RuntimeError) as error:
        raise BadInput(f"--device: {error}") from error
    figures = bench_copy(page_bytes, parts, pages=pages, device=where)
    if as_json:
        show(figures, as_json=True)
        return
    for line in ratios(figures):
        typer.echo(line)


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a bench's figures; tables within them are printed row by row."""
    if as_json:
        typer.echo(orjson.dumps(figures).decode())
        return
    for name, value in figures.items():
        if isinstance(value, list):
            for row in value:
                typer.echo(f"{name}: " + ", ".join(f"{k} {_said(v)}" for k, v in row.items()))
        elif isinstance(value, Mapping):
            typer.echo(f"{name}: " + ", ".join(f"{k} {_said(v)}" for k, v in value.items()))
        else:
            typer.echo(f"{name}: {_said(value)}")


def _said(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
