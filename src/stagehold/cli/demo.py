"""`stagehold demo`: a real model on real agent prompts, cold, warm and restarted, as a table or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput, write_out

if TYPE_CHECKING:
    from stagehold.lab.demo.parent import OnEvent
    from stagehold.lab.demo.report import DemoReport

NAMES = {
    "cold": "cold, empty store",
    "warm": "warm, last used first",
    "restart": "restarted, from the store",
    "dropped": "restarted, page cache dropped",
}


def demo(
    *,
    folder: Annotated[Path, typer.Option(help="Where it works, and leaves audit logs and pages.")] = Path("runs"),
    seconds: Annotated[float, typer.Option(min=1, help="Drop sessions that make it longer, by its estimate.")] = 150,
    random: Annotated[bool, typer.Option("--random", help="Run small random weights.")] = False,
    expect_real: Annotated[bool, typer.Option("--expect-real", help="Fail where real weights are not there.")] = False,
    share: Annotated[float, typer.Option(min=0.05, max=1, help="How much of each prompt's text is used.")] = 1.0,
    bars: Annotated[bool, typer.Option("--bars", help="Fail where a bar is missed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Serve agent prompts cold, warm, and after a restart; compare every page, every logit and every answer."""
    from stagehold.lab.demo.parent import DemoFailed, DemoOptions, audit_logs, run_demo
    from stagehold.machines.diagram import write_html

    if random and expect_real:
        raise BadInput("--random: expected without --expect-real, which wants other weights")
    for package in ("transformers", "tokenizers"):
        if find_spec(package) is None:
            raise BadInput(f"the demo needs the package {package!r}: pip install 'stagehold[demo]'")
    options = DemoOptions(folder=folder, seconds=seconds, random=random, expect_real=expect_real, share=share)
    try:
        report = run_demo(options, _teller(sys.stderr if as_json else sys.stdout))
    except DemoFailed as error:
        raise BadInput(str(error)) from error
    page, told = folder / "demo.html", folder / "demo-report.html"
    write_html(page, audit_logs(folder)[1])
    write_out(told, _page(report, folder).encode())
    if as_json:
        typer.echo(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    else:
        for line in _lines(report):
            typer.echo(line)
        typer.echo(f"\naudit logs {' and '.join(map(str, audit_logs(folder)))}, diagrams {page}, report {told}")
    faults = [*report.faults(), *(f"bar missed: {bar.name}" for bar in report.bars() if bars and not bar.met)]
    for fault in faults:
        typer.echo(f"stagehold: {fault}", err=True)
    if faults:
        raise typer.Exit(1)


def _page(report: DemoReport, folder: Path) -> str:
    """The report page: a run for each pass, and the machines of each engine."""
    from stagehold.cli.report import heats_of
    from stagehold.lab.demo.parent import log_of
    from stagehold.lab.demo.runs import run_of
    from stagehold.lab.reports.page import page

    runs = [run_of(report, name, log_of(folder, name)) for name in report.passes]
    return page(runs, title=f"{report.model}: cold, warm, restarted", extras=heats_of(runs))


def _teller(stream: Any) -> OnEvent:
    """Tells what begins, once: the model first."""
    told: set[str] = set()

    def tell(event: dict[str, Any]) -> None:
        line = _told(event)
        if line not in told:
            told.add(line)
            typer.echo(line, file=stream)

    return tell


def _told(event: dict[str, Any]) -> str:
    match event["event"]:
        case "model":
            return f"{'real' if event['real'] else 'RANDOM'} weights: {event['name']}"
        case "plan":
            return _plan(event) if "cold" in event["passes"] else "a new process, with an empty device pool"
        case "pass":
            return f"  {NAMES[event['name']]} ..."
        case _:
            raise AssertionError(event)


def _plan(event: dict[str, Any]) -> str:
    from stagehold.lab.demo.prompts import shipped_sessions

    dropped = [one.name for one in shipped_sessions() if one.name not in event["sessions"]]
    asked = f"{event['requests']} requests of {len(event['sessions'])} agent sessions"
    threads = "1 thread" if event["threads"] == 1 else f"{event['threads']} threads"
    lines = (
        f"{asked}, {event['prompt_tokens']:,} prompt tokens; {threads}; about {event['estimate_seconds']:.0f} s here",
        f"{event['pages']} pages, {event['store_bytes'] / 1e6:.0f} MB in the store while it runs",
        f"the device pool holds {event['device_pages']} pages",
        *([f"this machine is slow now, so these sessions were dropped: {', '.join(dropped)}"] if dropped else []),
    )
    return "\n".join(lines)


def _lines(report: DemoReport) -> Iterator[str]:
    yield from _times(report)
    yield from _hits(report)
    compared = sum(engine["compared"] for engine in report.engines)
    size = sum(engine["bytes"] for engine in report.engines)
    yield ""
    yield f"pages taken over and compared  {compared:,} ({size / 1e9:.2f} GB), others than computed: " + str(
        sum(engine["wrong"] + engine["unknown"] for engine in report.engines)
    )
    yield f"answers                        {'equal' if report.outputs_equal else 'DIFFERENT'} in all passes"
    yield f"largest logit difference       {report.max_logit_difference:.2g}"
    yield ""
    for bar in report.bars():
        wanted = f"{'at most' if bar.at_most else 'at least'} {bar.limit:g}"
        found = "not measured" if bar.found is None else f"{bar.found:.3g}"
        yield f"{bar.name:<52} {found:>12}   {wanted}{'' if bar.met else ', MISSED'}"
    yield f"\nan answer: {report.records('cold')[0]['text']!r}"


def _times(report: DemoReport) -> Iterator[str]:
    from stagehold.lab.demo.prompts import Kind

    yield f"\n{'milliseconds to the first token':<32}" + "".join(f"{kind.value:>28}" for kind in Kind)
    for name in report.passes:
        cells = (report.first_token_ms(name, kind) for kind in Kind)
        yield f"{NAMES[name]:<32}" + "".join(f"{_range(cell) if cell else '':>28}" for cell in cells)


def _range(cell: tuple[float, float, float]) -> str:
    middle, least, most = (f"{one:,.0f}" for one in cell)
    return middle if least == most else f"{middle} ({least} to {most})"


def _hits(report: DemoReport) -> Iterator[str]:
    heads = ("prompt", "computed", "device", "host", "store")
    yield f"\n{'tokens':<32}" + "".join(f"{head:>10}" for head in heads)
    for name in report.passes:
        tokens = report.tokens(name)
        yield f"{NAMES[name]:<32}" + "".join(f"{tokens[head]:>10,}" for head in heads)
