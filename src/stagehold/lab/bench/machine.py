"""What a declared step costs: against a bare method call, against `transitions`, and in bytes an instance.

Owns the measurement and a default mix of steps. Decisions and effects are called, and their bodies are empty.
Each figure is the processor time of this thread, best of several rounds that take all ways in turn, so that a busy
machine hits all alike.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import cycle, islice
from time import thread_time_ns
from typing import Any

from stagehold.machines import MACHINES, HandleKey, Journal, Machine, Stepper, bind
from stagehold.machines.oracle import FaceMachine, Token, oracle_machine
from stagehold.specs.declare import MachineSpec
from stagehold.specs.outcomes import (
    Answer,
    Commit,
    Copied,
    Evaluate,
    Fetched,
    IoCommit,
    Launch,
    Offer,
    PutEnded,
    Result,
    Start,
    StillCovered,
)

Taking = tuple[str, IntEnum, str, IntEnum | None]
"""One step that was taken: machine, state, event, outcome."""

ROUNDS = 40
STOCK_ROUNDS = 6  # of them with `transitions` in it, which takes fifty times as long as all the others
STEPS = 10_000
BLOCK_STEPS = 100
LIVE = 1_000

# Ways through a machine from its birth on, with how often each goes in a hundred requests. Outcomes by event.
WALKS: tuple[tuple[int, str, tuple[tuple[str, IntEnum | None], ...]], ...] = (
    (50, "request", (("issue", Launch.LOOKUP), ("answer", Answer.HIT), ("evaluate", Evaluate.LOCKED),
                     ("commit", Commit.DELIVERED), ("finish", None))),
    (10, "request", (("issue", Launch.LOOKUP), ("answer", Answer.HIT), ("evaluate", Evaluate.LOCKED),
                     ("commit", Commit.NO_ROOM), ("evaluate", Evaluate.LOCKED), ("commit", Commit.DELIVERED),
                     ("finish", None))),
    (20, "request", (("issue", Launch.LOOKUP), ("answer", Answer.MISS), ("due", Launch.LOOKUP),
                     ("answer", Answer.MISS), ("admit", None), ("finish", None))),
    (15, "request", (("issue", Launch.TOO_SHORT), ("admit", StillCovered.COMMIT), ("finish", None))),
    (5, "request", (("issue", Launch.LOOKUP), ("abort", None))),
    (50, "hold", (("io_commit", IoCommit.PINNED), ("fetched", Fetched.WHOLE), ("plan", None), ("load", None),
                  ("loaded", None))),
    (10, "hold", (("io_commit", IoCommit.NO_STAGING), ("io_commit", IoCommit.NO_STAGING),
                  ("io_commit", IoCommit.PINNED), ("fetched", Fetched.HEAD), ("plan", None), ("unplan", None),
                  ("plan", None), ("load", None), ("loaded", None))),
    (60, "write", (("offer", Offer.QUEUE), ("start", Start.COPY), ("copied", Copied.WANTED),
                   ("put_ended", PutEnded.STORED))),
    (20, "write", (("offer", Offer.BELIEVED),)),
    (10, "write", (("offer", Offer.QUEUE), ("start", Start.BLOCKED), ("start", Start.COPY),
                   ("copied", Copied.WANTED), ("put_ended", PutEnded.STORED))),
    (100, "store", (("result", Result.CLEAN),)),
)  # fmt: skip


def default_mix(steps: int = STEPS) -> list[Taking]:
    """`steps` steps in the proportions of `WALKS`."""
    specs = {spec.name: spec for spec in MACHINES}
    once: list[Taking] = []
    for weight, machine, walk in WALKS:
        spec, state = specs[machine], specs[machine].initial
        moves = spec.legal_moves()
        for event, outcome in walk:
            once += [(machine, state, event, outcome)] * weight
            state = moves[state, event, outcome]
    return list(islice(cycle(once), steps))


def bench_machine(mix: Sequence[Taking] | None = None) -> dict[str, Any]:
    """The cost of a step in nanoseconds, mean over `mix` (a recorded one, or the default).

    The figures on top are those with 1,000 live instances; `one_instance` holds those with one.
    """
    taken = Counter(default_mix() if mix is None else mix)
    many, one = _measure(taken, LIVE), _measure(taken, 1)
    return {
        **many,
        "instance_bytes": max(instance_bytes(spec) for spec in MACHINES),
        "live_instances": LIVE,
        "steps": sum(taken.values()),
        "rows": len(taken),
        "block_steps": BLOCK_STEPS,
        "one_instance": one,
    }


def instance_bytes(spec: MachineSpec) -> int:
    """Bytes of one instance: the object with its slots, its number, its tag; states and counters are shared."""
    m = _stepper(spec, None).birth(None, HandleKey("bench", 0, b""))
    return sys.getsizeof(m) + sys.getsizeof(1 << 20) + sys.getsizeof(m.tag)


class _Empty:
    """Decisions answer with their argument, effects do nothing: one call each, no more."""

    def call(self, _m: Machine, arg: Any) -> Any:
        return arg

    def nothing(self, _m: Machine, _arg: Any) -> None:
        return None


class _Answers(_Empty):
    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.call


class _Nothing(_Empty):
    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.nothing


class _Floor:
    """The floor: a method that stores a slot."""

    __slots__ = ("state",)

    def put(self, state: object) -> None:
        self.state = state


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to take a step: a loop over (line, source, argument), and what it steps on."""

    loop: Callable[[Sequence[Any], Any, Any], int]
    line: list[Any]
    source: Any
    outcome: Any


def _arm(_m: Machine, _deadline: object) -> None:
    """A clock of which only the call is measured."""


def _stepper(spec: MachineSpec, journal: Journal | None) -> Stepper:
    return bind(spec, decisions=_Answers(), effects=_Nothing(), journal=journal, arm=_arm, strict=False)


def _timed(call: str) -> Callable[[Any], Callable[[Sequence[Any], Any, Any], int]]:
    """A loop around `call`, written out so that the call stands in it as a caller would write it."""
    text = (
        "def bound(on):\n"
        "    def loop(line, source, outcome):\n"
        "        begin = now()\n"
        "        for m in line:\n"
        f"            {call}\n"
        "        return now() - begin\n"
        "    return loop\n"
    )
    namespace: dict[str, Any] = {"now": thread_time_ns}
    exec(text, namespace)  # noqa: S102 - one of the fixed texts below, with an event's name in it
    bound: Callable[[Any], Callable[[Sequence[Any], Any, Any], int]] = namespace["bound"]
    return bound


def _measure(taken: Counter[Taking], live: int) -> dict[str, float]:
    """Nanoseconds a step for each way, and their ratios."""
    journal = Journal()
    ways = _ways(taken, live, journal)
    steps = sum(taken.values())
    best = dict.fromkeys(ways, float("inf"))
    pieces: list[bytes] = []
    gc.collect()
    gc.disable()
    try:
        for round_ in range(ROUNDS):
            for name, parts in ways.items():
                if name == "transitions" and round_ >= STOCK_ROUNDS:
                    continue
                spent = sum(part.loop(part.line, part.source, part.outcome) for part in parts)
                best[name] = min(best[name], spent / steps)
                pieces = list(journal.records) if name == "audited" else pieces
                journal.records.clear()
        pack, best["block"] = _closing(journal, pieces)
    finally:
        gc.enable()
    return _figures(best, best["reset"] - best["loop"], pack)


def _figures(best: dict[str, float], reset: float, pack: float) -> dict[str, float]:
    """Steps begin with a store that puts the instance where the row begins; it is taken off again."""
    floor, stock = best["floor"], best["transitions"] - reset
    audited = best["audited"] - reset + pack
    return {
        "floor_ns": floor,
        "step_ns": best["step"] - reset,
        "audited_step_ns": audited,
        "pack_share_ns": pack,
        "empty_block_ns": best["block"],
        "transitions_ns": stock,
        "transitions_face_ns": best["face"] - reset + pack,
        "audited_over_floor": audited / floor,
        "transitions_over_audited": stock / audited,
    }


def _ways(taken: Counter[Taking], live: int, journal: Journal) -> dict[str, list[_Way]]:
    """For each way, a loop for each row of the mix over as many instances as the mix takes it."""
    ways: dict[str, list[_Way]] = {
        name: [] for name in ("loop", "reset", "floor", "step", "audited", "face", "transitions")
    }
    floors = [_Floor() for _ in range(live)]
    for spec in (spec for spec in MACHINES if spec.name in {machine for machine, *_ in taken}):
        bare, audited = _stepper(spec, None), _stepper(spec, journal)
        born = [audited.birth(None, HandleKey("bench", 0, b"")) for _ in range(live)]
        calls = {
            "loop": ("pass", None),
            "reset": ("m.state = source", None),
            "step": ("m.state = source; on.{event}(m, outcome)", bare),
            "audited": ("m.state = source; on.{event}(m, outcome)", audited),
            "face": ('m.state = source; on["{event}"].trigger(m, outcome)', FaceMachine(audited).events),
        }
        stock = oracle_machine(spec).events
        tokens = [Token("") for _ in range(live)]
        for (machine, state, event, outcome), count in taken.items():
            if machine != spec.name:
                continue
            line = _line(born, count)
            for name, (call, on) in calls.items():
                ways[name].append(_Way(_timed(call.format(event=event))(on), line, state, outcome))
            ways["floor"].append(_Way(_timed("m.put(source)")(None), _line(floors, count), state, outcome))
            stocked = _timed(calls["face"][0].format(event=event))(stock)
            ways["transitions"].append(_Way(stocked, _line(tokens, count), state.name, outcome))
    return ways


def _line(instances: list[Any], count: int) -> list[Any]:
    return list(islice(cycle(instances), count))


def _closing(journal: Journal, pieces: list[bytes]) -> tuple[float, float]:
    """Nanoseconds that closing costs: what each record of a block adds, and an empty block (with the clock read)."""
    journal.births.clear()
    blocks = [pieces[at : at + 2 * BLOCK_STEPS] for at in range(0, len(pieces), 2 * BLOCK_STEPS)]
    full, empty = float("inf"), float("inf")
    for _ in range(ROUNDS):
        full = min(full, _closed(journal, blocks))
        empty = min(empty, _closed(journal, [[] for _ in blocks]))
    return (full - empty) * 2 / len(pieces), empty / len(blocks)


def _closed(journal: Journal, blocks: list[list[bytes]]) -> int:
    """Nanoseconds to close all `blocks`, filling them left aside."""
    spent = 0
    for pieces in blocks:
        journal.records[:] = pieces
        begin = thread_time_ns()
        journal.close_block(0)
        spent += thread_time_ns() - begin
    return spent
