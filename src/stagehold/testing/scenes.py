"""Short scenes of a World that lead two parties to the same place at the same time; a blind walk seldom does.

Each is a few acts with drawn numbers: what comes of them is for the engine to decide, and other acts may come between.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from stagehold.specs.hold import HoldState
from stagehold.testing.content import Prompt
from stagehold.testing.visiting import Ending
from stagehold.testing.watched import Delivers
from stagehold.testing.world import World

Scene = Callable[[World, random.Random], None]

YOUNGEST = -1

PATIENCE_TICKS = 12
"""Most requests would be admitted without their hold after that."""


def overtaken(world: World, dice: random.Random) -> None:
    """A plan is open for pages of the store while a sibling that runs publishes them, and perhaps more."""
    stem, shared = dice.randrange(5), dice.randint(20, 48)
    _finish_all(world)
    world.evict(dice.choice((0, 40)))
    world.arrive(Prompt(stem, shared, 0, 9), 0, 3)
    world.visit(YOUNGEST, Ending.COMMIT)
    world.arrive(Prompt(stem, shared, 1, 9), 0, 3, dice.randint(2, 8))
    _until(world, HoldState.READY)
    world.select(YOUNGEST)
    world.compute(YOUNGEST, dice.choice((12, 64, 64)))
    world.end(0, Ending.COMMIT, dice.choice((Delivers.ALL, Delivers.ALL, Delivers.NONE)))


def crowd(world: World, dice: random.Random) -> None:
    """Siblings want one span; one of them is planned for, the others look and commit in any order."""
    stem, shared, stored = dice.randrange(5), dice.randint(20, 48), dice.randint(3, 10)
    count = dice.randint(2, 4)
    for fork in range(count):
        world.arrive(Prompt(stem, shared, fork, 5), 0, dice.choice((1, 9)), stored)
    _until(world, HoldState.READY)
    world.select(YOUNGEST)
    for _ in range(count):
        world.visit(dice.randint(-count, -1), dice.choice((Ending.COMMIT, Ending.ABORT)))
    world.end(0, dice.choice((Ending.COMMIT, Ending.COMMIT, Ending.RELEASE, Ending.ABORT)), dice.choice(list(Delivers)))


def anchored(world: World, dice: random.Random) -> None:
    """A hold hangs on a live prefix; the prefix is split, evicted, or grown before it is joined."""
    stem, shared = dice.randrange(5), dice.randint(8, 32)
    _finish_all(world)
    _serve(world, Prompt(stem, shared, 0, 8))
    world.arrive(Prompt(stem, shared, 1, 24), 0, 3, 18)
    _until(world, dice.choice((HoldState.PARKED, HoldState.FETCHING, HoldState.READY)))
    match dice.randrange(3):
        case 0:
            world.evict(dice.choice((4, 40)))
        case 1:
            world.arrive(Prompt(stem, dice.randint(5, shared), 2, 8), 0, 3)
            world.visit(YOUNGEST, Ending.COMMIT)
        case 2:
            _serve(world, Prompt(stem, shared, 1, 16))
    pass_ticks(world, dice.randint(0, 8))
    world.evict(dice.choice((0, 40)))
    for _ in range(dice.randint(1, 4)):
        world.visit(dice.randrange(4), Ending.COMMIT)
        world.tick()


def idle(world: World, dice: random.Random) -> None:
    """Nothing runs any more, copies still fly, and a large claimant is looked at again and again."""
    _finish_all(world)
    for guest in range(dice.choice((1, 2))):
        world.arrive(Prompt(dice.randrange(5), 44, guest, 20), 0, 6, dice.randint(4, 10))
    _until(world, HoldState.READY)
    world.visit(dice.choice((-1, -2)), Ending.COMMIT)
    _finish_all(world)
    for _ in range(dice.randint(1, 6)):
        world.visit(YOUNGEST, Ending.COMMIT)
        world.tick()


def uncovered(world: World, dice: random.Random) -> None:
    """A sibling's splice covers a request; when it is its turn, or just before its commit, the pages go."""
    _finish_all(world)
    stem, stored = dice.randrange(5), dice.randint(5, 10)
    for fork in range(2):
        world.arrive(Prompt(stem, 44, fork, 5), 0, 1, stored)
    _until(world, HoldState.READY)
    world.visit(dice.choice((-1, -2)), Ending.COMMIT)
    pass_ticks(world, PATIENCE_TICKS)
    _finish_all(world)
    if dice.random() < 0.5:
        world.evict(40)
    world.select(YOUNGEST)
    world.evict(40)
    world.end(0, Ending.COMMIT)


def impatient(world: World, dice: random.Random) -> None:
    """A long fetch is looked at in every pass, until it is ready or will not be waited for any more."""
    world.arrive(Prompt(dice.randrange(5), 44, dice.randrange(4), 20), 0, 3, 16)
    for _ in range(dice.randint(4, 18)):
        world.tick()
        world.visit(YOUNGEST, Ending.COMMIT)


def outage(world: World, dice: random.Random) -> None:
    """The store fails again and again while it is asked, slowly or in a burst."""
    for fork in range(dice.randint(3, 6)):
        _serve(world, Prompt(dice.randrange(5), dice.randint(8, 40), fork, 9))
        world.fail(dice.choice((1, 1, 2, 4)))
        pass_ticks(world, dice.randint(2, 4))


def leave(world: World, dice: random.Random) -> None:
    """The store is let go of, taken up again or not; then the process ends, or computes once more what it had."""
    prompt = Prompt(dice.randrange(5), 24, 0, 5)
    _serve(world, prompt)
    pass_ticks(world, PATIENCE_TICKS)
    world.detach()
    pass_ticks(world, dice.choice((0, 1, 30, 30)))
    world.attach(dice.choice((False, True)))
    if dice.random() < 0.5:
        world.restart()
        return
    pass_ticks(world, PATIENCE_TICKS)
    world.evict(40)
    _serve(world, prompt)
    world.tick()


def exposed(world: World, dice: random.Random) -> None:
    """A window has a hole in the middle; the store has the prefix up to there, and the tree what comes behind it."""
    stem, fork = dice.randrange(5), dice.randrange(50)
    _finish_all(world)
    world.arrive(Prompt(stem, 8, fork, 36), 0, 1)
    world.visit(YOUNGEST, Ending.COMMIT)
    for _ in range(11):
        world.compute(YOUNGEST, 4)
    world.finish(YOUNGEST)
    name = world.core.stocks.others[0].name
    world.strip(0, max(1, world.core.tree.evictable_slots(name) - dice.choice((1, 2, 2, 4))))
    world.arrive(Prompt(stem, 8, fork, 45), 0, 1, dice.choice((6, 9, 10, 10)))
    _until(world, HoldState.READY)
    world.visit(YOUNGEST, Ending.COMMIT)
    world.tick()


def bared(world: World, dice: random.Random) -> None:
    """A prefix keeps its pages and loses its windows, before a request comes or while its visit is open."""
    stem, shared = dice.randrange(5), dice.randint(16, 44)
    _finish_all(world)
    _serve(world, Prompt(stem, shared, 0, 5))
    pass_ticks(world, dice.choice((0, PATIENCE_TICKS)))
    world.strip(0, 40)
    world.arrive(Prompt(stem, shared, dice.randrange(2), 9), 0, 3, dice.choice((0, 4, 18)))
    _until(world, HoldState.READY)
    world.select(YOUNGEST)
    world.strip(dice.randrange(2), dice.choice((0, 2, 40)))
    world.end(0, Ending.COMMIT)


def squeezed(world: World, dice: random.Random) -> None:
    """While a visit is open others are promised the slots of a window or a state; then nothing is delivered."""
    stem, stored = dice.randrange(5), dice.randint(5, 10)
    _finish_all(world)
    world.arrive(Prompt(stem, 44, 0, 9), 0, 3, stored)
    _until(world, HoldState.READY)
    world.select(YOUNGEST)
    for fork in range(1, dice.randint(2, 4)):
        world.arrive(Prompt(stem + 1, dice.randint(4, 24), fork, 9), 0, 3)
        world.visit(YOUNGEST, Ending.COMMIT)
    world.end(0, Ending.COMMIT, dice.choice((Delivers.NONE, Delivers.NONE, Delivers.ALL)))


PART_SCENES: tuple[Scene, ...] = (exposed, bared, squeezed)
"""Those for worlds of several components."""

SCENES: tuple[Scene, ...] = (*[overtaken, crowd, anchored, idle, uncovered, impatient] * 2, outage, leave)
"""The last two are rarer, since little else goes on behind them."""


def pass_ticks(world: World, ticks: int) -> None:
    """Time goes by."""
    for _ in range(ticks):
        world.tick()


def _until(world: World, state: HoldState) -> None:
    """Time goes by until the youngest hold has come to a state, or for as long as anybody would wait."""
    for _ in range(PATIENCE_TICKS):
        world.tick()
        holds = list(world.core.holds.values())
        if holds and holds[-1].state is state:
            return


def _finish_all(world: World) -> None:
    """Nobody runs any more."""
    for _ in range(len(world.running)):
        world.compute(0, 72)
        world.finish(0)


def _serve(world: World, prompt: Prompt) -> None:
    """A request from arrival to end, if there is room for it."""
    world.arrive(prompt, 0, 1)
    world.visit(YOUNGEST, Ending.COMMIT)
    world.compute(YOUNGEST, 72)
    world.finish(YOUNGEST)
