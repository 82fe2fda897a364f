"""A storm: many requests through one World, with evictions, splits and sibling inserts at random ticks.

Unlike a walk it is a scheduler that gets things done, so thousands of requests come to an end; only what happens to
tree and store between a launch and its commit is drawn.
"""

from __future__ import annotations

import random
from dataclasses import replace

from stagehold.cache.stores.simulated import Delays, Rates
from stagehold.testing.content import Prompt
from stagehold.testing.shapes import WorldShape, small
from stagehold.testing.visiting import Ending
from stagehold.testing.world import World

QUEUE = 16
"""Requests that are alive at most: twice what the device has room for."""


def storm_shape() -> WorldShape:
    """Room for a handful of requests, a store that is slow now and then and fails a little."""
    return replace(
        small(device_pages=72, staging_pages=24),
        delays=Delays((1, 3), (1, 8), (1, 6)),
        rates=Rates(lose=0.01, fail=0.01, corrupt=0.01, short=0.01),
        copy_ticks=(1, 4),
    )


class Storm:
    """Serves `requests` requests in a world of `shape`; `run` returns when all have ended."""

    def __init__(self, seed: int, requests: int, shape: WorldShape | None = None) -> None:
        self.world = World(seed, storm_shape() if shape is None else shape)
        self._dice = random.Random(f"storm {seed}")  # noqa: S311 - reproducible on purpose
        self._left = requests

    def run(self) -> World:
        """Pass after pass, then everything to its end."""
        while self._left:
            self._pass()
        self.world.quiesce()
        return self.world

    def _pass(self) -> None:
        world, dice = self.world, self._dice
        self._arrive()
        world.tick()
        self._disturb()
        for _ in range(len(world.waiting)):
            self._visit()
        for _ in range(len(world.running)):
            world.compute(dice.randrange(8), dice.choice((8, 24, 72)))
            world.decode(dice.randrange(8))
        for _ in range(len(world.running) // 2):
            world.finish(dice.randrange(8))

    def _arrive(self) -> None:
        world, dice = self.world, self._dice
        crowd = min(dice.choice((0, 1, 1, 3)), self._left, QUEUE - len(world.guests))
        stem, shared, stored = dice.randrange(5), dice.randint(4, 48), dice.choice((0, 3, 6, 18))
        for _ in range(crowd):
            prompt = Prompt(stem, shared, dice.randrange(50), dice.choice((1, 5, 17)))
            world.arrive(prompt, dice.choice((0, 0, 0, 1)), dice.choice((1, 4)), stored)
        self._left -= max(0, crowd)

    def _disturb(self) -> None:
        """Between a launch and its commit: evictions, neighbours, an abort, a retraction."""
        world, dice = self.world, self._dice
        if dice.random() < 0.3:
            world.evict(dice.choice((2, 8, 72)))
        if world.shape.config.components and dice.random() < 0.3:
            world.strip(dice.randrange(2), dice.choice((1, 3, 72)))
        if dice.random() < 0.1:
            world.neighbour(dice.randrange(64), 18)
        if dice.random() < 0.05:
            world.abort(dice.randrange(64))
        if dice.random() < 0.05:
            world.retract(dice.randrange(8))

    def _visit(self) -> None:
        """One look; a visit may stay open while siblings run, publish and are looked at."""
        world, dice = self.world, self._dice
        who = dice.randrange(64)
        if dice.random() < 0.3:
            world.select(who)
            world.compute(dice.randrange(8), 72)
            world.end(0, dice.choice((Ending.COMMIT, Ending.COMMIT, Ending.RELEASE)))
        else:
            world.visit(who, Ending.COMMIT)
