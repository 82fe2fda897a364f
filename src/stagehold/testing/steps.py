"""A random walk of a World: which act comes next, and with which numbers. Owns the weights; the World owns the acts.

Each seed switches some acts off and makes others common, so that a run is long in one kind of trouble instead of
short in all of them. Acts that end things are rare, or nothing would live long enough to meet a race.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from stagehold.specs.request import RequestState
from stagehold.testing.content import Prompt
from stagehold.testing.scenes import PART_SCENES, SCENES
from stagehold.testing.shapes import WorldShape, drawn
from stagehold.testing.visiting import Ending
from stagehold.testing.watched import Delivers
from stagehold.testing.world import World

WEIGHTS = {
    "tick": 36, "arrive": 12, "follow": 2, "visit": 24, "select": 5, "end": 3, "compute": 24, "decode": 6,
    "publish": 2, "finish": 18, "retract": 1, "abort": 1.5, "evict": 8, "neighbour": 3,
    "lose": 0.7, "damage": 0.7, "fail": 0.5, "stall": 0.3, "unstall": 3,
    "flush": 0.2, "detach": 0.2, "attach": 8, "restart": 0.04, "rewind": 0.15, "drain": 0.2, "scene": 8,
}  # fmt: skip
"""Before the seed has had its say."""

OTHERS = {"strip": 8}
"""The same of acts on components beside the one that carries the tree, where there are any."""

ALONE = {"attach": 0.3, "detach": 0.6}
"""The same where an engine is born without a store: it gets one late, and not for long."""

ALWAYS = ("tick", "arrive", "visit", "compute", "finish", "attach", "scene")
"""Without these a World stands still."""

MOST_GUESTS = 7
"""Beyond this many live requests nobody arrives: a longer queue meets no other race."""

PATIENCE = 0.6
"""How often a tick is put off for as long as a visit is open."""

EAGERNESS = {
    RequestState.QUEUED: 1, RequestState.LOOKUP: 2, RequestState.STAGED: 12, RequestState.COVERED: 6,
    RequestState.RETRY: 1, RequestState.CAPPED: 4,
}  # fmt: skip
"""How eagerly a waiting request is visited: one that is admitted at once meets no store."""

FASHION = 0.4
"""How often the stem and the shared length change from one arrival to the next: siblings come in crowds."""


class Walk:
    """The walk of one seed through one World; `step` performs one act, or the few of a scene."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._dice = random.Random(f"walk {world.seed}")  # noqa: S311 - reproducible on purpose
        self._stem, self._shared = 0, 24
        chosen = WEIGHTS | (OTHERS if world.shape.config.components else {}) | (ALONE if world.shape.alone else {})
        weights = {name: self._weight(name, weight) for name, weight in chosen.items()}
        self._names, self._weights = list(weights), list(weights.values())

    def _weight(self, name: str, weight: float) -> float:
        factor = self._dice.choice((0.0, 0.3, 1.0, 1.0, 3.0, 8.0))
        return weight if name in ALWAYS else weight * factor

    def step(self) -> None:
        """What comes next."""
        (name,) = self._dice.choices(self._names, self._weights)
        if name in ("arrive", "follow", "scene") and len(self.world.guests) >= MOST_GUESTS:
            name = "tick"
        if name == "tick" and self.world.open and self._dice.random() < PATIENCE:
            name = "compute"  # siblings that run while a visit is open are what makes a plan stale
        act: Callable[[], None] = getattr(self, f"_{name}", None) or getattr(self.world, name)
        act()

    def run(self, acts: int) -> None:
        """At least as many acts."""
        end = len(self.world.acts) + acts
        while len(self.world.acts) < end:
            self.step()

    def _scene(self) -> None:
        several = bool(self.world.shape.config.components)
        self._dice.choice(SCENES + PART_SCENES * 3 if several else SCENES)(self.world, self._dice)

    def _any(self) -> int:
        return self._dice.randrange(1 << 16)

    def _arrive(self) -> None:
        dice = self._dice
        if dice.random() < FASHION:
            self._stem, self._shared = dice.randrange(5), dice.randint(1, 48)
        prompt = Prompt(self._stem, self._shared, dice.randrange(4), dice.choice((0, 1, 5, 9, 17)))
        stored = dice.choice((0, 2, 6, 18))
        self.world.arrive(prompt, dice.choice((0, 0, 0, 1)), dice.choice((1, 3, 9, 14)), stored)

    def _follow(self) -> None:
        self.world.follow(self._any(), self._dice.choice((1, 6, 13)), self._dice.choice((1, 6)))

    def _visit(self) -> None:
        ending = self._dice.choices(list(Ending), (88, 9, 3))[0]
        self.world.visit(self._waiter(), ending, self._delivers())

    def _waiter(self) -> int:
        """Somebody who waits: rather one who has come far than one who has just arrived."""
        waiting = self.world.waiting
        states = [self.world.engine.state_of(guest.handle) for guest in waiting]
        return self._dice.choices(range(len(waiting)), [EAGERNESS[state] for state in states])[0] if waiting else 0

    def _delivers(self) -> Delivers:
        return self._dice.choices(list(Delivers), (80, 8, 12))[0]

    def _select(self) -> None:
        self.world.select(self._waiter(), self._dice.choice((64, 5, 1, 0)))

    def _end(self) -> None:
        self.world.end(self._any(), self._dice.choices(list(Ending), (80, 15, 5))[0], self._delivers())

    def _compute(self) -> None:
        self.world.compute(self._any(), self._dice.choice((3, 8, 19, 64, 64)), self._dice.random() < 0.8)

    def _decode(self) -> None:
        self.world.decode(self._any(), self._dice.random() < 0.1)

    def _publish(self) -> None:
        self.world.publish(self._any())

    def _finish(self) -> None:
        self.world.finish(self._any())

    def _retract(self) -> None:
        self.world.retract(self._any())

    def _abort(self) -> None:
        self.world.abort(self._any())

    def _evict(self) -> None:
        self.world.evict(self._dice.choice((1, 3, 8, 40)))

    def _strip(self) -> None:
        self.world.strip(self._any(), self._dice.choice((1, 2, 4, 40)))

    def _lose(self) -> None:
        self.world.lose(self._any())

    def _damage(self) -> None:
        self.world.damage(self._any())

    def _fail(self) -> None:
        self.world.fail(self._dice.choice((1, 2, 6)))

    def _neighbour(self) -> None:
        self.world.neighbour(self._any(), self._dice.choice((2, 5, 18)))

    def _attach(self) -> None:
        self.world.attach(self._dice.random() < 0.3)

    def _tick(self) -> None:
        self.world.tick(self._dice.random() < 0.9)

    def _drain(self) -> None:
        self.world.drain(self._dice.choice((0, 2, 9)))

    def _rewind(self) -> None:
        self.world.rewind(self._dice.choice((1, 4)))


def walk(seed: int, acts: int, shape: WorldShape | None = None) -> World:
    """The World of a seed (in its own shape, or the given one) after a walk of as many acts, everything at its end."""
    world = World(seed, drawn(seed) if shape is None else shape)
    try:
        Walk(world).run(acts)
        world.quiesce()
        world.close()
    except Exception as error:
        error.add_note(f"seed {seed}, act {len(world.acts)}: {world.acts[-1] if world.acts else 'the start'}")
        raise
    return world
