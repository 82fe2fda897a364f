"""What a declared step costs: against a bare method call, against `transitions`, and in bytes an instance.

Owns the measurement. Decisions and effects are called, and their bodies are empty. Each figure is the processor
time of this thread, for each block of steps the best of several rounds that take all ways in turn, so that a busy
machine hits all alike.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time_ns
from typing import Any

from stagehold.lab.bench.mix import Mix, Taking, shipped_mix
from stagehold.machines import MACHINES, HandleKey, Journal, Machine, Stepper, bind
from stagehold.machines.logs import AuditLog
from stagehold.machines.oracle import FaceMachine, Token, oracle_machine
from stagehold.specs.declare import MachineSpec

ROUNDS = 80
STOCK_ROUNDS = 6  # of them with `transitions` in it, which takes fifty times as long as all the others
LIVE = 1_000
BLOCK_STEPS = 100  # steps between two clearings of the records, and in a block in which a record's share is measured


def bench_machine(mix: Mix | None = None) -> dict[str, Any]:
    """The cost of a step in nanoseconds, mean over `mix` (the shipped recording if left out).

    The figures on top are those with 1,000 live instances; `one_instance` holds those with one. An audited step has
    its share of packing in it; `full_step_ns` adds what a block costs however full it is (closing, hash, its line in
    the log), shared by the steps that lay in one block when the mix was recorded.
    """
    mix = mix or shipped_mix()
    return {
        **_measure(mix, LIVE),
        "instance_bytes": max(instance_bytes(spec) for spec in MACHINES),
        "live_instances": LIVE,
        "steps": mix.steps,
        "rows": len(mix.taken),
        "recorded_block_steps": mix.block_steps,
        "one_instance": _measure(mix, 1),
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


@dataclass(slots=True)
class _Way:
    """One way to take one row: a loop over (block, source, argument), and for each block its best time so far.

    A block is what the loop steps on: at most `BLOCK_STEPS` instances, so that records never pile up as they
    would not in an engine, either.
    """

    loop: Callable[[Sequence[Any], Any, Any], int]
    blocks: list[list[Any]]
    source: Any
    outcome: Any
    best: list[float]


def _way(loop: Callable[[Sequence[Any], Any, Any], int], line: list[Any], source: Any, outcome: Any) -> _Way:
    blocks = [line[at : at + BLOCK_STEPS] for at in range(0, len(line), BLOCK_STEPS)]
    return _Way(loop, blocks, source, outcome, [float("inf")] * len(blocks))


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


def _measure(mix: Mix, live: int) -> dict[str, float]:
    """Nanoseconds a step for each way, and their ratios."""
    journal = Journal()
    ways = _ways(mix.taken, live, journal)
    pieces: list[bytes] = []
    gc.collect()
    gc.disable()
    try:
        for round_ in range(ROUNDS):
            for name, parts in ways.items():
                if name != "transitions" or round_ < STOCK_ROUNDS:
                    recorded = _round(parts, journal)
                    pieces = recorded if name == "audited" else pieces
        pack, block = _closing(journal, pieces)
        clock = _clock_ns()
    finally:
        gc.enable()
    means = {name: sum(ns - clock for part in parts for ns in part.best) / mix.steps for name, parts in ways.items()}
    return _figures(means, pack, (block, mix.block_steps))


def _round(parts: Sequence[_Way], journal: Journal) -> list[bytes]:
    """Every block of every row once; returns what was recorded."""
    pieces: list[bytes] = []
    for part in parts:
        for at, block in enumerate(part.blocks):
            spent = part.loop(block, part.source, part.outcome)
            part.best[at] = min(part.best[at], spent)
            pieces += journal.records
            journal.records.clear()
    return pieces


def _figures(means: Mapping[str, float], pack: float, block: tuple[float, float]) -> dict[str, float]:
    """Steps begin with a store that puts the instance where the row begins; it is taken off again."""
    reset = means["reset"] - means["loop"]
    floor, stock = means["floor"], means["transitions"] - reset
    audited = means["audited"] - reset + pack
    block_ns, block_steps = block
    return {
        "floor_ns": floor,
        "step_ns": means["step"] - reset,
        "audited_step_ns": audited,
        "pack_share_ns": pack,
        "logged_block_ns": block_ns,
        "full_step_ns": audited + block_ns / block_steps,
        "transitions_ns": stock,
        "transitions_face_ns": means["face"] - reset + pack,
        "audited_over_floor": audited / floor,
        "transitions_over_audited": stock / audited,
    }


def _ways(taken: Mapping[Taking, int], live: int, journal: Journal) -> dict[str, list[_Way]]:
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
                ways[name].append(_way(_timed(call.format(event=event))(on), line, state, outcome))
            ways["floor"].append(_way(_timed("m.put(source)")(None), _line(floors, count), state, outcome))
            stocked = _timed(calls["face"][0].format(event=event))(stock)
            ways["transitions"].append(_way(stocked, _line(tokens, count), state.name, outcome))
    return ways


def _clock_ns() -> int:
    """What reading the clock twice costs: it is in the time of every block, and is taken off again."""
    loop = _timed("pass")(None)
    return min(loop([], None, None) for _ in range(1_000))


def _line(instances: list[Any], count: int) -> list[Any]:
    return list(islice(cycle(instances), count))


def _closing(journal: Journal, pieces: list[bytes]) -> tuple[float, float]:
    """Nanoseconds that closing costs: what each record of a block adds, and an empty block with its line in the log."""
    journal.births.clear()
    blocks = [pieces[at : at + 2 * BLOCK_STEPS] for at in range(0, len(pieces), 2 * BLOCK_STEPS)]
    none: list[list[bytes]] = [[] for _ in blocks]
    full, empty, logged = float("inf"), float("inf"), float("inf")
    with TemporaryDirectory() as folder, AuditLog(Path(folder) / "log.jsonl") as log:
        for _ in range(ROUNDS):
            full = min(full, _closed(journal, blocks))
            empty = min(empty, _closed(journal, none))
            journal.sink = log.block
            logged = min(logged, _closed(journal, none))
            journal.sink = None
    return (full - empty) * 2 / len(pieces), logged / len(blocks)


def _closed(journal: Journal, blocks: list[list[bytes]]) -> int:
    """Nanoseconds to close all `blocks`, filling them left aside."""
    spent = 0
    for pieces in blocks:
        journal.records[:] = pieces
        begin = thread_time_ns()
        journal.close_block(0)
        spent += thread_time_ns() - begin
    return spent
