"""Gathers the groups of verbs into one command, and turns bad input into one line and exit status 2.

Each group is imported when one of its verbs is used, so that `stagehold diagram` never waits for torch.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from stagehold.cli import (
    audit,
    bench,
    compare,
    config,
    demo,
    diagram,
    doctor,
    explore,
    live,
    machines,
    metrics,
    replay,
    report,
    simulate,
    store,
    trace,
)
from stagehold.cli import size as sizes
from stagehold.cli import sweep as sweeps
from stagehold.cli.errors import BadInput

# torch's worker threads spin while they wait, which takes the cores from the store's threads: a replay on two cores
# took three times as long. OpenMP reads these once, when torch is loaded; what the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Let a request to end, or a terminal that goes, unwind like Ctrl-C: no folder and no thread is left behind."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if here and signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


class Plain(TyperGroup):
    """A group whose verbs may raise what bad input raises: one line on stderr, exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            with unwound_by_signals():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read the output has seen enough of it
        except BadInput as error:
            line = str(error)
        except OSError as error:
            line = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        except ValidationError as error:
            line = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        typer.echo(f"stagehold: {line}", err=True)
        raise typer.Exit(2)


app = typer.Typer(
    cls=Plain,
    help="Declared state machines for staged KV cache: replay traces, draw, check and audit the machines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("replay")(replay.replay)
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("sweep", context_settings=sweeps.ANY_OPTION)(sweeps.sweep)
app.command("size", context_settings=sweeps.ANY_OPTION)(sizes.size)
app.command("report")(report.report)
app.command("top")(live.top)
app.command("watch")(live.watch)
app.command("diagram")(diagram.diagram)
app.command("doctor")(doctor.doctor)
app.command("explore")(explore.explore)
app.add_typer(audit.app, name="audit")
app.add_typer(config.app, name="config")
app.add_typer(machines.app, name="machines")
app.add_typer(metrics.app, name="metrics")
app.add_typer(store.app, name="store")
app.add_typer(trace.app, name="trace")
app.add_typer(bench.app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stagehold {version('stagehold')}")
        raise typer.Exit


@app.callback()
def main(
    show: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Declared state machines for staged KV cache: replay traces, draw, check and audit the machines."""
