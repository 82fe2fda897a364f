"""`stagehold audit`: whether a log is sound, what it amounts to, where two logs part, and why a request went so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput

if TYPE_CHECKING:
    from stagehold.machines import Replayed
    from stagehold.machines.audit import Verification
    from stagehold.machines.heat import Heat
    from stagehold.machines.records import Totals
    from stagehold.specs.declare import MachineSpec

app = typer.Typer(help="Read audit logs.", no_args_is_help=True)
Log = Annotated[Path, typer.Argument(help="Audit log, JSON lines.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("verify")
def verify(
    log: Log,
    head: Annotated[
        str | None, typer.Option(help="Digest that the last block must have, in hex, as it was told elsewhere.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check chain, rows, births, continuity and tokens; exit 1 at the first fault, which is named."""
    from stagehold.machines import audit

    found = audit.verify(log, head=None if head is None else _digest(head), machines=machines_of(log))
    if as_json:
        typer.echo(orjson.dumps(_judged(found)).decode())
        raise typer.Exit(int(not found.sound))
    if found.fault is not None:
        typer.echo(f"stagehold: {found.fault}", err=True)
        raise typer.Exit(1)
    counts = f"{found.blocks:,} blocks, {found.records:,} records, {found.instances:,} instances"
    typer.echo(f"{log}: {counts}, sound; head {found.digest.hex()}")


@app.command("diff")
def diff(
    first: Annotated[Path, typer.Argument(help="The log that is taken to be right.")],
    second: Annotated[Path, typer.Argument(help="The log that is held against it.")],
) -> None:
    """Print the first difference of two logs and exit 1; print nothing and exit 0 if they tell the same."""
    from stagehold.machines import audit_diff

    with _readable():
        difference = audit_diff.diff(first, second, machines_of(first))
    if difference is not None:
        typer.echo(str(difference))
        raise typer.Exit(1)


@app.command("replay")
def replay(log: Log, *, as_json: AsJson = False) -> None:
    """Rebuild every instance and the token totals from the log alone, and print where all of them stand."""
    from stagehold.machines import audit

    with _readable():
        rebuilt = audit.replay(log, machines_of(log))
    if as_json:
        typer.echo(orjson.dumps(_rebuilt(rebuilt)).decode())
        return
    for line in _standings(rebuilt):
        typer.echo(line)


@app.command("stats")
def stats(log: Log) -> None:
    """Print how often each row of each machine was taken, as Markdown; rows never taken are marked."""
    from stagehold.machines import audit, heat

    with _readable():
        machines = machines_of(log)
        counted = audit.stats(log, machines)
    typer.echo(f"# {log}\n\n{_figures(counted)}\n\n{heat.markdown(counted, machines)}", nl=False)


@app.command("explain")
def explain(
    request: Annotated[str, typer.Argument(help="Id of the request, as it was given to `arrive`.")],
    log: Log,
    *,
    as_json: AsJson = False,
) -> None:
    """Say why a request was declined, retried, capped, deferred or recomputed, or what it reused; exit 1 if unknown."""
    from stagehold.machines.audit_explain import explain as explained

    with _readable():
        told = explained(log, request, machines_of(log))
    typer.echo(orjson.dumps(told.plain()).decode() if as_json else str(told), err=not as_json and not told.attempts)
    if not told.attempts:
        raise typer.Exit(1)


def machines_of(log: Path) -> tuple[MachineSpec, ...]:
    """The machines that wrote a log, where it is a policy's of the lab; ours for any other."""
    from stagehold.lab.policies.shipped import BY_DECLARATION
    from stagehold.machines import MACHINES
    from stagehold.machines.audit_read import BadLogError, blocks

    try:
        first = next(blocks(log), None)
    except BadLogError:
        return MACHINES  # whoever reads it says what is wrong
    policy = None if first is None else BY_DECLARATION.get(first.block.declaration)
    return MACHINES if policy is None else policy.machines.specs


@contextmanager
def _readable() -> Iterator[None]:
    """A log that cannot be read is bad input; only `verify` is asked to judge it."""
    from stagehold.machines.audit_read import BadLogError

    try:
        yield
    except BadLogError as error:
        raise BadInput(str(error)) from error


def _digest(text: str) -> bytes:
    from stagehold.machines.records import DIGEST_BYTES

    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise BadInput(f"--head: expected {2 * DIGEST_BYTES} hex digits, found {text!r}")
    return digest


def _judged(found: Verification) -> dict[str, Any]:
    """What `verify` found: the figures cover what is sound; the fault's kind goes by its member's name."""
    fault = found.fault
    told = None if fault is None else {
        "damage": fault.damage.name, "line": fault.line, "block": fault.block, "expected": fault.expected,
        "found": fault.found, "sentence": str(fault),
    }  # fmt: skip
    counts = {"blocks": found.blocks, "records": found.records, "instances": found.instances}
    return {"sound": found.sound, **counts, "head": found.digest.hex(), "fault": told}


def _rebuilt(rebuilt: Replayed) -> dict[str, Any]:
    """Where everybody stands, as numbers."""
    from stagehold.machines.audit_replay import standing

    totals = rebuilt.totals
    losses = {loss.name.lower(): tokens for loss, tokens in sorted(totals.losses.items()) if tokens}
    tokens = {"queried": totals.queried, "spliced": totals.spliced, "losses": losses, "open": totals.open}
    digests = {"standing": standing(rebuilt).hex(), "head": rebuilt.digest.hex()}
    return {"instances": _states(rebuilt), "tokens": tokens, "refused": totals.refused, **digests}


def _states(rebuilt: Replayed) -> dict[str, Counter[str]]:
    """How many instances of each machine are in each state."""
    where: dict[str, Counter[str]] = {}
    for instance in rebuilt.instances.values():
        where.setdefault(instance.machine, Counter())[instance.state.name.lower()] += 1
    return where


def _standings(rebuilt: Replayed) -> Iterator[str]:
    """Instances by machine and state, tokens, a digest of all of it, and that of the last block."""
    from stagehold.machines.audit_replay import standing

    for machine, states in _states(rebuilt).items():
        yield f"{machine}: " + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    yield f"tokens: {_tokens(rebuilt.totals)}"
    yield f"refused events: {rebuilt.totals.refused:,}"
    yield f"standing: {standing(rebuilt).hex()}"
    yield f"head: {rebuilt.digest.hex()}"


def _figures(counted: Heat) -> str:
    ticks = f"ticks {counted.first_tick:,} to {counted.last_tick:,}" if counted.blocks else "no tick"
    return f"{counted.blocks:,} blocks, {counted.records:,} records, {ticks}.\n\nTokens: {_tokens(counted.totals)}."


def _tokens(totals: Totals) -> str:
    lost = [f"{tokens:,} lost as {loss.name.lower()}" for loss, tokens in sorted(totals.losses.items()) if tokens]
    parts = [f"{totals.queried:,} queried", f"{totals.spliced:,} spliced", *lost, f"{totals.open:,} open"]
    return ", ".join(parts)
