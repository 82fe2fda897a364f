"""`stagehold simulate`: a whole trace through the real engine in virtual time, hours of it in minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput, refuse_overwriting, write_out
from stagehold.cli.replay import progress_bar, refuse_without_store
from stagehold.cli.trace import FORMATS, TraceOption, chosen_format, trace_file
from stagehold.lab.virtual_costs import AcceleratorName, CostModel, ModelName, device_tokens, measured, preset
from stagehold.specs.outcomes import FetchGate, HostMode

if TYPE_CHECKING:
    from stagehold.lab.policies.policy import Policy
    from stagehold.lab.simulate import SimulationOptions

MOST_PAGES = 100_000_000
"""Of either tier: each costs some tens of bytes here, whatever it stands for."""


class Order(StrEnum):
    """Orders of eviction: the engine's, and the one that knows the trace's future."""

    LRU = "lru"
    S3FIFO = "s3fifo"
    BELADY = "belady"


POLICY_NAMES = "none, blind, paced or live"


def simulate(
    *,
    trace: TraceOption = None,
    of: Annotated[str | None, typer.Option("--format", help=FORMATS)] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Only the first N requests.")] = None,
    scale: Annotated[int, typer.Option(min=1, max=512, help="Tokens that stand for 512 of the trace.")] = 512,
    model: Annotated[ModelName, typer.Option(help="Model whose sizes are used.")] = ModelName.LLAMA_3_1_8B,
    accelerator: Annotated[AcceleratorName, typer.Option(help="What it runs on.")] = AcceleratorName.H100,
    accelerators: Annotated[int, typer.Option(min=1, max=1024, help="How many of them share every layer.")] = 4,
    prefill_rate: Annotated[
        float | None, typer.Option(min=1, max=1e12, help="Prompt tokens a second, instead.")
    ] = None,
    step_ms: Annotated[
        float | None, typer.Option(min=0.000001, max=1e5, help="Milliseconds of a decode step, instead.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure both here; sizes stay those of --model.")
    ] = False,
    mode: Annotated[HostMode, typer.Option(help="What host memory is.")] = HostMode.BUFFER_ONLY,
    policy: Annotated[str, typer.Option(help=f"How pages are brought back: {POLICY_NAMES}.")] = "live",
    tier: Annotated[bool, typer.Option(help="Without it, the same as --policy none.")] = True,
    no_store: Annotated[bool, typer.Option("--no-store", help="Host memory alone, with --mode cache.")] = False,
    page_size: Annotated[int, typer.Option(min=1, max=4096, help="Tokens in a page.")] = 64,
    device_pages: Annotated[
        int, typer.Option(min=0, max=MOST_PAGES, help="Pages on the device; 0: what fits beside the weights.")
    ] = 0,
    staging_pages: Annotated[
        int, typer.Option(min=0, max=MOST_PAGES, help="Pages of host memory; 0: 1.2 x or 2 x the pool.")
    ] = 0,
    token_budget: Annotated[int, typer.Option(min=1, help="Tokens that one pass may compute.")] = 2048,
    store_gbps: Annotated[float, typer.Option(min=0.001, max=1e6, help="GB a second between server and store.")] = 20,
    store_latency_ms: Annotated[str, typer.Option(help="Least and most of an operation.")] = "0.5-2",
    store_gb: Annotated[
        float, typer.Option(min=0, max=1e9, help="Capacity of the store in GB; 0: it keeps everything.")
    ] = 0,
    retries: Annotated[int | None, typer.Option(min=0, help="Most launches after the first.")] = None,
    retry_interval: Annotated[
        int | None, typer.Option(min=0, help="Ticks from the first miss to the next launch.")
    ] = None,
    eviction: Annotated[Order, typer.Option(help="Which pages leave the device first.")] = Order.LRU,
    fetch_gate: Annotated[
        FetchGate, typer.Option(help="auto: a store that is not worth its wait is left alone.")
    ] = FetchGate.OFF,
    pin_fraction: Annotated[float, typer.Option(min=0, max=1, help="Part of the pool that pins may hold.")] = 0.5,
    seed: Annotated[int, typer.Option(min=-(1 << 63), max=(1 << 63) - 1, help="Draws the store's delays.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Check all books after every tick; slow.")] = False,
    audit: Annotated[Path | None, typer.Option(help="Write the audit log there.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the run there, for `stagehold report`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay a trace in virtual time; the same options give the same figures and the same digest."""
    from stagehold.lab.expand import Scale
    from stagehold.lab.simulate import SimulationOptions
    from stagehold.lab.virtual_store import LinkSpeed
    from stagehold.specs.limits import Limits

    limits = {"retry_max_reissues": retries, "retry_interval_ticks": retry_interval}
    cost = preset(model, accelerator, accelerators)
    if calibrate:
        cost = _calibrated(cost)
    options = SimulationOptions(
        cost=replace(
            cost,
            prefill_tokens_per_second=prefill_rate or cost.prefill_tokens_per_second,
            step_ms=step_ms or cost.step_ms,
        ),
        device_tokens=device_tokens(model, accelerator, accelerators),
        trace=trace_file(trace),
        trace_format=chosen_format(of),
        requests=requests,
        scale=Scale(scale),
        page_size=page_size,
        device_pages=device_pages,
        staging_pages=staging_pages,
        mode=mode,
        policy=_policy(policy, tier=tier),
        token_budget=token_budget,
        store=not no_store,
        link=LinkSpeed(store_gbps * 1e9, _span(store_latency_ms)),
        store_bytes=ceil(store_gb * 1e9),
        limits=Limits(**{name: given for name, given in limits.items() if given is not None}),
        pin_fraction=pin_fraction,
        belady=eviction is Order.BELADY,
        settings=_settings(eviction, fetch_gate),
        seed=seed,
        strict=strict,
        audit=audit,
    )
    if no_store:
        refuse_without_store(mode, {"--no-tier": not tier, "--store-gb": store_gb})
    for option, path in (("--audit", audit), ("--out", out)):
        if path is not None:
            refuse_overwriting(option, path, options.trace)
    if audit is not None and out is not None and audit.resolve() == out.resolve():
        raise BadInput(f"--out {out}: expected another file than the audit log")
    _run(options, out, as_json=as_json)


def _run(options: SimulationOptions, out: Path | None, *, as_json: bool) -> None:
    from stagehold.lab.clock import StoreUnusable
    from stagehold.lab.expand import ScaleError
    from stagehold.lab.simulate import Simulation, Stalled
    from stagehold.lab.simulate_report import faults, figures, whole
    from stagehold.lab.traces import TraceError

    start = time.monotonic()
    try:
        with progress_bar(shown=not as_json) as progress:
            simulation = Simulation(options, progress)
            samples = simulation.run()
    except (TraceError, ScaleError, StoreUnusable, Stalled) as error:
        raise BadInput(str(error)) from error
    found = figures(simulation, samples)
    if out is not None:
        write_out(out, orjson.dumps(whole(simulation, samples)))
    if as_json:
        typer.echo(orjson.dumps(found).decode())
    else:
        _show(found, time.monotonic() - start, out)
    for fault in faults(found):
        typer.echo(f"stagehold: {fault}", err=True)
    if faults(found):
        raise typer.Exit(1)


def _settings(eviction: Order, fetch_gate: FetchGate) -> dict[str, Any]:
    """What is chosen of the engine's settings."""
    order = {} if eviction is Order.BELADY else {"eviction": eviction.value}
    return {**order, "fetch_gate": fetch_gate}


def _policy(name: str, *, tier: bool) -> Policy:
    """The policy of that name; without a tier it is none."""
    from stagehold.lab.policies.shipped import POLICIES, policy_named

    if name not in POLICIES:
        raise BadInput(f"--policy {name}: expected one of {', '.join(POLICIES)}")
    return policy_named(name if tier else "none")


def _span(text: str) -> tuple[float, float]:
    """`0.5-2` or `1`, in milliseconds."""
    from stagehold.lab.cell_options import OptionError, value

    try:
        least, most = value("store_latency_ms", text)
    except OptionError as error:
        raise BadInput(str(error)) from error
    return least, most


def _calibrated(cost: CostModel) -> CostModel:
    """The pace of the bundled model on this machine, told, so that it can be given again."""
    from stagehold.serving.model.ready import calibrate, load_model

    loaded = load_model()
    pace = calibrate(loaded, (1,), time.perf_counter)
    found = measured(f"{loaded.name}, measured", pace.prompt_tokens_per_second, pace.step_seconds, cost.kv_token_bytes)
    told = f"--prefill-rate {found.prefill_tokens_per_second:.6g} --step-ms {found.step_ms:.6g}"
    typer.echo(f"stagehold: measured {told}", err=True)
    return found


def _show(found: dict[str, Any], took: float, out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"stagehold simulate: {found['requests']:,} requests, {found['mode']}, {found['cost']}"
    table = Table("what", title=title, title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("note")
    for row in _rows(found):
        table.add_row(*row)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"pages of {found['page_tokens']} tokens, {found['page_bytes']:,} bytes: {found['device_pages']:,} on the "
        f"device, {found['staging_pages']:,} of staging\n"
        f"{found['seconds']:,.0f} s of the trace in {took:,.1f} s; digest {found['digest']}"
    )
    if out is not None:
        console.print(f"run written to {out}")


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %" if whole else ""

    hits, prompts = found["device_hit_tokens"] + found["store_hit_tokens"], found["prompt_tokens"]
    ttft = found["ttft_ms"]
    yield (
        "time to first token",
        f"{ttft['p50']:,.0f} ms",
        f"half; 95 %: {ttft['p95']:,.0f} ms, 99 %: {ttft['p99']:,.0f}",
    )
    yield "prompt tokens", f"{prompts:,}", ""
    yield "hit tokens", f"{hits:,}", f"{share(hits, prompts)} of the prompts"
    yield "  from the device", f"{found['device_hit_tokens']:,}", ""
    yield "  from host memory or the store", f"{found['store_hit_tokens']:,}", ""
    yield "ideal hit tokens", f"{found['ideal_hit_tokens']:,}", f"{share(hits, found['ideal_hit_tokens'])} reached"
    yield "recomputed tokens", f"{found['recomputed_tokens']:,}", "computed before, and again"
    yield "queried hit tokens", f"{found['queried_hit_tokens']:,}", "counted per claim"
    for reason, tokens in found["losses"].items():
        yield f"  lost: {reason}", f"{tokens:,}", ""
    fetched = found["fetched_tokens"] + found["local_tokens"]
    yield "fetched tokens", f"{fetched:,}", f"{100 * found['waste']:.1f} % not spliced"
    yield "bytes read", f"{found['read_bytes']:,}", "from the store"
    yield "bytes written", f"{found['written_bytes']:,}", "to the store"
    yield "retries", f"{found['retries']:,}", f"at most {found['max_retries']} of a request"
    yield "deferrals", f"{found['deferrals']:,}", f"{found['retractions']:,} retractions"
    yield "phantom hit tokens", f"{found['phantom_hit_tokens']:,}", f"{found['compared_pages']:,} pages looked at"
    yield "violations", f"{found['violations']:,}", f"{found['ticks']:,} ticks"
