"""`stagehold replay`: a trace through the engine, as a table for people or one JSON object for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out
from stagehold.cli.replay_modes import replay_both, show_both
from stagehold.cli.trace import TraceOption, trace_file
from stagehold.specs.outcomes import HostMode, WritePolicy

if TYPE_CHECKING:
    from stagehold.lab.ranks import RanksReport
    from stagehold.lab.replay import OnProgress, Replay, ReplayOptions
    from stagehold.lab.report import ReplayReport


def replay(
    *,
    trace: TraceOption = None,
    requests: Annotated[int, typer.Option(min=1, max=10**9, help="How many of the trace's requests.")] = 500,
    mode: Annotated[HostMode, typer.Option(help="What host memory is.")] = HostMode.BUFFER_ONLY,
    no_store: Annotated[bool, typer.Option("--no-store", help="Host memory alone, with --mode cache.")] = False,
    modes: Annotated[bool, typer.Option("--modes", help="Both modes in turn, with equal host memory.")] = False,
    write_policy: Annotated[WritePolicy, typer.Option(help="When pages are written.")] = WritePolicy.WRITE_THROUGH,
    fail_writes: Annotated[float, typer.Option(min=0, max=100, help="Per cent of the puts that fail.")] = 0,
    restart_after: Annotated[
        int, typer.Option(min=0, help="Fresh engine on the same store after N requests; 0: none.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Draws the store's delays.")] = 0,
    scale: Annotated[int, typer.Option(min=1, max=512, help="Tokens that stand for a block of 512.")] = 16,
    device_pages: Annotated[
        int, typer.Option(min=0, help="Pages of the device pool; 0: a quarter of the working set.")
    ] = 0,
    staging_pages: Annotated[
        int, typer.Option(min=0, help="Pages of host memory; 0: 1.2 x (buffer_only) or 2 x the pool.")
    ] = 0,
    token_budget: Annotated[int, typer.Option(min=1, help="Tokens that one pass may compute.")] = 512,
    store_delay: Annotated[int, typer.Option(min=1, help="Most ticks that a store's answer is held back.")] = 8,
    tenants: Annotated[int, typer.Option(min=1, help="Deal the conversations to N tenants, who share nothing.")] = 1,
    hang_ups: Annotated[float, typer.Option(min=0, max=100, help="Per cent of the clients who give up.")] = 0,
    speed: Annotated[int, typer.Option(min=1, help="How many times as fast the trace runs.")] = 1,
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Ranks that share scheduling, a process each.")] = 1,
    in_process: Annotated[bool, typer.Option("--in-process", help="All ranks in this process, in turns.")] = False,
    group_timeout: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds after which a silent rank is given up.")
    ] = 60,
    store_folder: Annotated[
        Path | None, typer.Option(help="Where the store lies, and stays; else it is gone afterwards.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Audit log; runs/replay-MODE.jsonl if left out.")] = None,
    strict: Annotated[bool, typer.Option(help="Check all books after every tick.")] = True,
    shadow_oracle: Annotated[
        bool, typer.Option("--shadow-oracle", help="Hold every step against `transitions`; slower.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the figures there, for `stagehold report`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay a trace, compare every page's bytes, and report where the hit tokens went."""
    from stagehold import Diverged, InvariantBroken, RankLost
    from stagehold.lab.clock import StoreUnusable
    from stagehold.lab.expand import Scale
    from stagehold.lab.ranks import Ranks, RanksFailed
    from stagehold.lab.replay import Replay, ReplayOptions
    from stagehold.lab.traces import TraceError

    options = ReplayOptions(
        audit=audit or Path("runs") / f"replay-{mode.value}.jsonl",
        trace=trace_file(trace),
        requests=requests,
        mode=mode,
        restart_after=restart_after,
        seed=seed,
        scale=Scale(scale),
        device_pages=device_pages,
        staging_pages=staging_pages,
        token_budget=token_budget,
        store=not no_store,
        store_delay=store_delay,
        tenants=tenants,
        hang_ups=hang_ups,
        write_policy=write_policy,
        fail_writes=fail_writes,
        speed=speed,
        strict=strict,
        shadow_oracle=shadow_oracle,
        store_folder=store_folder,
    )
    refuse_overwriting("--audit", options.audit, options.trace)
    if no_store:
        refuse_without_store(mode, {"--modes": modes, "--store-folder": store_folder, "--fail-writes": fail_writes})
    refuse_out(out, options)
    try:
        with progress_bar(shown=not as_json) as progress:
            run = Replay(options, progress)
            refuse_restart(run)
            refuse_oversize(run, memory=_available_memory(), disk=disk_usage(gettempdir()).free)
            if modes:
                reports = replay_both(options, progress)
                show_both(reports, out, as_json=as_json)
                for one in reports.values():
                    end(one)
                return
            report: ReplayReport | RanksReport
            if ranks == 1 and not in_process:
                report = run.run()
            else:
                of_ranks = Ranks(options, ranks, in_process=in_process, timeout_seconds=group_timeout)
                report = of_ranks.run(progress, started)
    except (TraceError, StoreUnusable) as error:
        raise BadInput(str(error)) from error
    except InvariantBroken as error:
        typer.echo(f"stagehold: invariant broken: {error}; the audit log ends there: {options.audit}", err=True)
        raise typer.Exit(1) from error
    except (RanksFailed, RankLost, Diverged) as error:
        typer.echo(f"stagehold: {error}", err=True)
        raise typer.Exit(1) from error
    tell(run, report, out, as_json=as_json)
    end(report)


def refuse_out(out: Path | None, options: ReplayOptions) -> None:
    """The figures must not be written over the trace, nor over the audit log."""
    if out is not None:
        refuse_overwriting("--out", out, options.trace)
        if out.resolve() == options.audit.resolve():
            raise BadInput(f"--out {out}: expected another file than the audit log")


def tell(run: Replay, report: ReplayReport | RanksReport, out: Path | None, *, as_json: bool) -> None:
    """Print the report, and write it where that is wanted."""
    told = orjson.dumps(report.as_json())
    if out is not None:
        write_out(out, told)
    if as_json:
        typer.echo(told.decode())
    else:
        show(run, report)


def end(report: ReplayReport | RanksReport) -> None:
    """Say what must not be, and exit 1 where there is any."""
    for fault in report.faults():
        typer.echo(f"stagehold: {fault}", err=True)
    if report.faults():
        raise typer.Exit(1)


def started(rank: int, pid: int) -> None:
    """Say which process a rank is, for whoever wants to look at it, or to end it."""
    typer.echo(f"stagehold: rank {rank} is process {pid}", err=True)


def refuse_without_store(mode: HostMode, others: dict[str, object]) -> None:
    """Say what makes no sense without a store: a mode in which nothing serves, and options of a store."""
    if mode is not HostMode.CACHE:
        raise BadInput(f"--no-store: expected --mode cache; with {mode.value}, host memory serves nothing by itself")
    for option, given in others.items():
        if given:
            raise BadInput(f"--no-store: expected no {option} beside it, which is about a store")


def refuse_restart(run: Replay) -> None:
    """Say that a restart would come after the last request, and so never."""
    cut, requests = run.options.restart_after, len(run.workload.requests)
    if cut >= requests:
        raise BadInput(f"--restart-after {cut}: expected less than the {requests} requests of this run")


def refuse_oversize(run: Replay, *, memory: int, disk: int) -> None:
    """Say before the start, with the arithmetic, that the pools or the store would not fit; bytes available."""
    config = run.config
    pools = (config.device_pages + config.staging_pages) * config.page_bytes
    stored = run.workload.working_set_pages * config.page_bytes
    page = f"{config.page_bytes:,} bytes"
    if pools > memory:
        raise BadInput(
            f"{config.device_pages:,} device and {config.staging_pages:,} staging pages of {page} are {pools:,} bytes, "
            f"{memory:,} of memory are available; lower --requests, --scale or --device-pages"
        )
    if stored > disk:
        raise BadInput(
            f"a working set of {run.workload.working_set_pages:,} pages of {page} is {stored:,} bytes, "
            f"{disk:,} are free where temporary files go; lower --requests or --scale, or set TMPDIR"
        )


def _available_memory() -> int:
    """Bytes that Linux says can be had without swapping; no limit where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return sys.maxsize
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), sys.maxsize)


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[OnProgress | None]:
    """A bar on stderr where a person can see it; None where nobody would."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)


def show(run: Replay, found: ReplayReport | RanksReport) -> None:
    """Print the report as a table, with the sizes that it was made on."""
    from rich.console import Console
    from rich.table import Table

    from stagehold.lab.report import ReplayReport

    report = found if isinstance(found, ReplayReport) else found.of_all
    config, workload = run.config, run.workload
    table = Table(
        title=f"stagehold replay: {report.requests} requests, {config.host_memory_mode}", title_justify="left"
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("note")
    for row in _rows(report):
        table.add_row(*row)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"{run.options.scale}\n"
        f"a page is {config.page_size} tokens of {run.layout.token_bytes:,} bytes\n"
        f"pages: {config.device_pages:,} on the device, {config.staging_pages:,} of staging, "
        f"{workload.working_set_pages:,} in the working set\n"
        f"audit log {report.audit_log}"
    )
    if not isinstance(found, ReplayReport):
        kind = "in turns in this process" if found.in_process else "processes"
        told = f"{found.exchanges:,} exchanges each, {found.differing_ticks:,} ticks recorded differently"
        console.print(f"ranks: {len(found.results)}, {kind}; {told}; tokens are each rank's, bytes all of them")


def _rows(report: ReplayReport) -> Iterator[tuple[str, str, str]]:
    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %" if whole else ""

    hits = report.device_hit_tokens + report.store_hit_tokens
    yield "prompt tokens", f"{report.prompt_tokens:,}", ""
    yield "hit tokens", f"{hits:,}", f"{share(hits, report.prompt_tokens)} of the prompts"
    yield "  from the device", f"{report.device_hit_tokens:,}", ""
    yield "  from host memory or the store", f"{report.store_hit_tokens:,}", ""
    yield (
        "ideal hit tokens",
        f"{report.ideal_hit_tokens:,}",
        f"{share(hits, report.ideal_hit_tokens)} reached" if report.ideal_hit_tokens else "no prefix returns",
    )
    yield "recomputed tokens", f"{report.recomputed_tokens:,}", "computed before, and again"
    yield "queried hit tokens", f"{report.queried_hit_tokens:,}", "counted per claim"
    yield "  fetched", f"{report.fetched_tokens:,}", ""
    yield "  found in host memory", f"{report.local_tokens:,}", "page cache or host tier: the store was not asked"
    yield "  spliced", f"{report.spliced_tokens:,}", ""
    for reason, tokens in report.losses.items():
        yield f"  lost: {reason}", f"{tokens:,}", ""
    yield "  open claims", f"{report.open_claim_tokens:,}", ""
    redundant = share(report.redundant_write_tokens, report.written_tokens)
    yield "written tokens", f"{report.written_tokens:,}", f"{redundant} of them were there" if redundant else ""
    yield "offered for writing", f"{report.offered_tokens:,}", "each token once for every time that it was offered"
    yield "  stored", f"{report.stored_tokens:,}", ""
    if report.kept_tokens:
        yield "  kept in host memory", f"{report.kept_tokens:,}", "no store was in use"
    yield "  refused", f"{report.refused_tokens:,}", "stored already, or what leads to them is not"
    yield "  dropped", f"{report.dropped_tokens:,}", f"{report.failed_puts:,} puts failed" if report.failed_puts else ""
    yield "  evicted unwritten", f"{report.evicted_unwritten_tokens:,}", ""
    for reason, times in report.declines.items():
        yield f"launches declined: {reason}", f"{times:,}", ""
    yield "most retries of a request", str(report.max_retries), ""
    yield "ticks", f"{report.ticks:,}", ""
    yield "compared bytes", f"{report.compared_bytes:,}", "every page at its first use"
    yield "wrong bytes", f"{report.wrong_bytes:,}", ""
    yield "phantom hit tokens", f"{report.phantom_hit_tokens:,}", ""
    yield "violations", f"{report.violations:,}", ""
