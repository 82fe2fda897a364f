"""Long random walks of small worlds: for depth, where a search is for breadth. The same seed makes the same walk.

Each walk is brought to its end by an ordinary scheduler without further trouble, and then nothing may be left.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stagehold.specs.declare import Kind
from stagehold.specs.request import REQUEST
from stagehold.testing.checks import unreturned
from stagehold.testing.explore.broken import require, unheard
from stagehold.testing.explore.choices import Move, moves, usual
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.report import program_of
from stagehold.testing.explore.small import Budget, SmallWorld
from stagehold.testing.explore.ways import limit_of

LIVES = 64
"""Transitions after which a walk begins anew: by then all budgets are spent, and everybody has mostly ended."""

RARE = {"abort": 0.5, "flush": 0.2, "detach": 0.1, "tick": 1.0, "select": 1.0, "finish": 1.0}
"""How often a kind of move is chosen against the others: what ends things is rare, or nothing would live long."""

EARLY = 0.2
"""How often, against that, who has just arrived is looked at or aborted: it would end without having met the store."""

ABORTABLE = tuple(
    state.name.name.lower() for state in REQUEST.states if state.kind not in (Kind.TERMINAL, Kind.PASSING)
)
"""States in which a request can be aborted: a passing one is left in the cascade that entered it."""


@dataclass(slots=True)
class Walked:
    """What walks have done: `aborted_in` counts the states in which requests were aborted.

    `situations` differ from each other, `unreleased` are units without a home after walks that have ended, and
    `longest` is the most ticks that an ordinary scheduler needed to end one.
    """

    transitions: int = 0
    walks: int = 0
    situations: int = 0
    unreleased: int = 0
    longest: int = 0
    aborted_in: Counter[str] = field(default_factory=Counter)
    violation: str = ""
    program: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def never_aborted_in(self) -> list[str]:
        """States in which a request can be aborted, and none was."""
        return [state for state in ABORTABLE if not self.aborted_in[state]]


def walk(
    worlds: Sequence[SmallWorld],
    seed: int,
    *,
    transitions: int = 1 << 62,
    seconds: float = float("inf"),
    every: Callable[[Walked], None] | None = None,
) -> Walked:
    """Walk the worlds in turn until so many transitions, or seconds, are done; `every` is told after each walk."""
    dice = random.Random(f"explore {seed}")  # noqa: S311 - reproducible on purpose
    done, start = Walked(), time.perf_counter()
    pairs = [_pair(world) for world in worlds]
    begun = [pair.save() for pair in pairs]
    told: set[bytes] = set()
    while done.transitions < transitions and done.seconds < seconds and not done.violation:
        which = done.walks % len(pairs)
        pair = pairs[which]
        pair.restore(begun[which])
        with unheard():
            _one(pair, dice, done, told, min(LIVES, transitions - done.transitions))
        done.walks += 1
        done.situations = len(told)
        done.seconds = time.perf_counter() - start
        if every is not None:
            every(done)
    return done


def _pair(world: SmallWorld) -> Pair:
    """A world with more of every trouble that it has, since no budget has to keep a walk finite."""
    pair = Pair(world)
    pair.own.budget = Budget(*(4 * units for units in world.budget))._replace(abort=2, release=2, retract=1, late=8)
    return pair


def _one(pair: Pair, dice: random.Random, done: Walked, told: set[bytes], most: int) -> None:
    world = pair.world
    way: list[Move] = []
    try:
        while len(way) < most and not (pair.ended and "away" not in pair.own.stands):
            can = moves(pair)
            (move,) = dice.choices(can, [_weight(pair, one) for one in can])
            way.append(move)
            before = _state(pair, move[1]) if move[0] == "abort" else ""
            pair.do(move)
            told.add(pair.told())
            if before:
                done.aborted_in[before] += 1
            done.transitions += 1
        done.longest = max(done.longest, _to_the_end(pair, way, limit_of(world)))
        done.unreleased += sum(sum(unreturned(core).values()) for core in pair.cores)
        pair.rest()
    except Exception as error:  # noqa: BLE001 - whatever an engine raises here is a find
        done.violation, done.program = f"{type(error).__name__}: {error}", program_of(world, way)


def _weight(pair: Pair, move: Move) -> float:
    early = move[0] in ("abort", "select") and _state(pair, move[1]) == "queued"
    return RARE.get(move[0], 2.0) * (EARLY if early else 1.0)


def _to_the_end(pair: Pair, way: list[Move], limit: int) -> int:
    """Do what is usual until everything has ended; in how many ticks. A look that changes nothing is followed by more.

    The moves are added to the way, so that a fault behind it has its program, too.
    """
    ticks = 0
    while not pair.ended:
        before = pair.told()
        for move in usual(pair):
            way.append(move)
            ticks += move[0] == "tick"
            pair.do(move)
            if pair.told() != before:
                break
        require(ticks <= limit, f"not everything has ended after {ticks} ticks without trouble, {limit} are allowed")
    return ticks


def _state(pair: Pair, who: int) -> str:
    handle = pair.own.handles[who]
    assert handle is not None, "only who has arrived is aborted"
    return pair.engines[0].state_of(handle).name.lower()
