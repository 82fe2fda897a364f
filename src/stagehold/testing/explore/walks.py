"""Long random walks of small worlds: for depth, where a search is for breadth. The same seed makes the same walk."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stagehold.testing.explore.broken import unheard
from stagehold.testing.explore.choices import Move, moves
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.report import program_of
from stagehold.testing.explore.small import Budget, SmallWorld

LIVES = 64
"""Transitions after which a walk begins anew: by then all budgets are spent, and everybody has mostly ended."""

RARE = {"abort": 0.3, "flush": 0.2, "detach": 0.1, "tick": 1.0}
"""How often a kind of move is chosen against the others: what ends things is rare, or nothing would live long."""


@dataclass(slots=True)
class Walked:
    """What walks have done: `aborted_in` counts the states in which requests were aborted."""

    transitions: int = 0
    walks: int = 0
    aborted_in: Counter[str] = field(default_factory=Counter)
    violation: str = ""
    program: tuple[str, ...] = ()
    seconds: float = 0.0


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
    pairs = [(world, _pair(world)) for world in worlds]
    begun = [(pair, pair.save()) for _, pair in pairs]
    while done.transitions < transitions and done.seconds < seconds and not done.violation:
        which = done.walks % len(pairs)
        world, pair = pairs[which]
        pair.restore(begun[which][1])
        with unheard():
            _one(world, pair, dice, done, min(LIVES, transitions - done.transitions))
        done.walks += 1
        done.seconds = time.perf_counter() - start
        if every is not None:
            every(done)
    return done


def _pair(world: SmallWorld) -> Pair:
    """A world with more of every trouble that it has, since no budget has to keep a walk finite."""
    pair = Pair(world)
    pair.own.budget = Budget(*(4 * units for units in world.budget))._replace(abort=2, release=2, retract=1, late=8)
    return pair


def _one(world: SmallWorld, pair: Pair, dice: random.Random, done: Walked, most: int) -> None:
    way: list[Move] = []
    for _ in range(most):
        can = moves(pair)
        (move,) = dice.choices(can, [RARE.get(one[0], 2.0) for one in can])
        way.append(move)
        before = _state(pair, move[1]) if move[0] == "abort" else ""
        try:
            pair.do(move)
            pair.told()
        except Exception as error:  # noqa: BLE001 - whatever an engine raises here is a find
            done.violation, done.program = f"{type(error).__name__}: {error}", program_of(world, way)
            return
        if before:
            done.aborted_in[before] += 1
        done.transitions += 1
        if pair.ended and "away" not in pair.own.stands:
            return


def _state(pair: Pair, who: int) -> str:
    handle = pair.own.handles[who]
    assert handle is not None, "only who has arrived is aborted"
    return pair.engines[0].state_of(handle).name.lower()
