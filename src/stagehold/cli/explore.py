"""`stagehold explore`: the real engine in small worlds, searched to the last situation; and the programs it prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from stagehold.cli.errors import BadInput

if TYPE_CHECKING:
    from stagehold.testing.explore.report import Found
    from stagehold.testing.explore.small import SmallWorld


TOLD_EVERY = 50_000
"""Transitions of a walk after which its progress is told on standard error."""


def explore(
    *,
    world: Annotated[list[str] | None, typer.Option(help="Only this world; may be given again.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Worlds that are searched at a time.")] = 1,
    most: Annotated[int, typer.Option(min=1, help="Situations of a world after which its search is cut off.")] = 1
    << 30,
    replay: Annotated[str | None, typer.Option(help="Run the program in this file instead; - is stdin.")] = None,
    walk: Annotated[int | None, typer.Option(min=1, help="Make so many random transitions instead.")] = None,
    soak: Annotated[float | None, typer.Option(min=0, help="Storms, rules and walks for so many seconds.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random transitions, and of the first round.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Search small worlds of two real ranks and two requests; exit 1 with a program where anything is wrong."""
    _one_of({"--replay": replay, "--walk": walk, "--soak": soak})
    for option, other in (("--replay", replay), ("--soak", soak)):
        if world and other is not None:
            raise BadInput(f"--world goes with a search or --walk, not with {option}")
    if replay is not None:
        _replay(replay)
    elif soak is not None:
        _soak(soak, seed, as_json=as_json)
    elif walk is not None:
        _walk(_worlds(world), walk, seed, as_json=as_json)
    else:
        _search(_worlds(world), processes, most, as_json=as_json)


def _one_of(options: dict[str, object]) -> None:
    """At most one way to explore may be given: each would leave the others out."""
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)}: expected one of them at a time")


def _worlds(names: list[str] | None) -> list[SmallWorld]:
    from stagehold.testing.explore.worlds import WORLDS

    known = {one.name: one for one in WORLDS}
    for name in names or ():
        if name not in known:
            raise BadInput(f"--world {name}: expected one of {', '.join(known)}")
    return [known[name] for name in names] if names else list(WORLDS)


def _search(worlds: list[SmallWorld], processes: int, most: int, *, as_json: bool) -> None:
    from stagehold.testing.explore.report import explore as search

    report = search(worlds, processes=processes, most=most, progress=None if as_json else _show)
    if as_json:
        typer.echo(orjson.dumps(report).decode())
    else:
        typer.echo(
            f"{report['states']:,} situations, {report['transitions']:,} transitions, "
            f"{report['violations']} violations; from each at most {report['liveness_bound']} ticks to the end; "
            f"{report['seconds']:.0f} s"
        )
    if not report["holds"]:
        raise typer.Exit(1)


def _show(found: Found) -> None:
    verdict = "holds" if found.holds else "DOES NOT HOLD"
    cut = "" if found.whole else ", cut off"
    typer.echo(
        f"world {found.world}: {found.states:,} situations{cut}, {found.transitions:,} transitions, {verdict}; "
        f"at most {found.liveness_bound} ticks to the end ({found.liveness_limit} allowed); {found.seconds:.1f} s"
    )
    for what in found.violations:
        typer.echo(f"  {what}")
    for line in found.program:
        typer.echo(f"    {line}")


def _replay(name: str) -> None:
    from stagehold.testing.explore.pair import Pair
    from stagehold.testing.explore.program import BadProgram, parse, play
    from stagehold.testing.explore.worlds import WORLDS

    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    text = data.decode("utf-8", "replace")  # what is no text is no move either, and is told with its line
    try:
        world, program = parse(text.splitlines(), WORLDS)
        play(Pair(world), program, typer.echo)
    except BadProgram as error:
        raise BadInput(f"{name}: {error}") from error
    except Exception as error:
        where = "; ".join(getattr(error, "__notes__", ()))
        typer.echo(f"{where}: {type(error).__name__}: {error}")
        raise typer.Exit(1) from error


def _walk(worlds: list[SmallWorld], transitions: int, seed: int, *, as_json: bool) -> None:
    from stagehold.testing.explore.walks import Walked, walk

    heard = 0

    def tell(so_far: Walked) -> None:
        nonlocal heard
        if so_far.transitions - heard >= TOLD_EVERY:
            heard = so_far.transitions
            typer.echo(f"{heard:,} of {transitions:,} transitions after {so_far.seconds:.0f} s", err=True)

    done = walk(worlds, seed, transitions=transitions, every=tell)
    told: dict[str, Any] = {
        "transitions": done.transitions,
        "walks": done.walks,
        "situations": done.situations,
        "seed": seed,
        "violations": int(bool(done.violation)),
        "unreleased": done.unreleased,
        "longest_ticks_to_the_end": done.longest,
        "aborted_in": dict(sorted(done.aborted_in.items())),
        "never_aborted_in": done.never_aborted_in,
        "per_second": round(done.transitions / max(done.seconds, 1e-9)),
        "seconds": round(done.seconds, 1),
    }
    if as_json:
        typer.echo(orjson.dumps({**told, "program": list(done.program)}).decode())
    else:
        typer.echo(", ".join(f"{name} {value}" for name, value in told.items()))
        for line in (done.violation, *done.program) if done.violation else ():
            typer.echo(f"    {line}")
    if done.violation:
        raise typer.Exit(1)


def _soak(seconds: float, seed: int, *, as_json: bool) -> None:
    from stagehold.testing.explore.soak import MOST_GROWTH, Soaked, soak

    def tell(done: Soaked) -> None:
        typer.echo(f"seed {seed + done.rounds - 1}: {done.sizes[-1]:.0f} MiB after {done.seconds:.0f} s")

    done = soak(seed, seconds, None if as_json else tell)
    told: dict[str, Any] = {
        "seeds": [seed, seed + done.rounds - 1],
        "requests": done.requests,
        "acts": done.acts,
        "examples": done.examples,
        "transitions": done.transitions,
        "aborted_in": dict(sorted(done.aborted_in.items())),
        "mebibytes": [round(size, 1) for size in (done.sizes[0], done.sizes[-1])],
        "growth_per_round": round(done.growth, 3),
        "growth_allowed": MOST_GROWTH,
        "flat": done.flat,
        "seconds": round(done.seconds, 1),
    }
    typer.echo(orjson.dumps(told).decode() if as_json else ", ".join(f"{name} {value}" for name, value in told.items()))
    if not done.flat:
        raise typer.Exit(1)
