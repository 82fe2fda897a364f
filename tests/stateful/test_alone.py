"""Worlds whose engines are born without a store: host memory serves alone, and a store comes late, if at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stagehold import EngineConfig, HostMode, WritePolicy
from stagehold.testing.mixes import PAIRWISE, Mix, mixed, recut
from stagehold.testing.shapes import WorldShape, drawn
from stagehold.testing.steps import walk
from stagehold.testing.storm import Storm, storm_shape
from stagehold.testing.world import World

SEEDS = range(9, 14)
ACTS = 250
REQUESTS = 80
CACHES = [mix for mix in PAIRWISE if mix.mode is HostMode.CACHE]


def alone(shape: WorldShape, policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> WorldShape:
    """The same world in `cache` mode, without a store."""
    options = shape.config.model_dump() | {"host_memory_mode": HostMode.CACHE, "write_policy": policy}
    return replace(shape, config=EngineConfig.model_validate(options), alone=True)


def served(worlds: list[World]) -> tuple[int, int]:
    """Holds that host memory gave whole, and pages that went there and nowhere else."""
    stats = [world.engine.stats() for world in worlds]
    return sum(one.count("hold_io_commit_local").taken for one in stats), sum(one.host_only_pages for one in stats)


@pytest.mark.parametrize("policy", list(WritePolicy))
def test_walks_end_well(policy: WritePolicy) -> None:
    """Strict all the way: no leak, no wrong byte, and everything comes to rest."""
    given, kept = served([walk(seed, ACTS, alone(drawn(seed), policy)) for seed in SEEDS])
    assert min(given, kept) > 0


def test_an_engine_that_writes_back_comes_to_rest_beside_a_store() -> None:
    """What the last pass publishes may go out in the ticks after it, and then nothing more."""
    for seed in (5000, 5003, 5025):
        shape = replace(alone(drawn(seed), WritePolicy.WRITE_BACK), alone=False)
        world = walk(seed, 150, shape)
        assert world.engine.stats().stored_pages > 0


def test_walks_with_windows_and_checkpoints_end_well() -> None:
    """One of each combination that has a host tier."""
    given, kept = served([walk(seed, ACTS, alone(mixed(seed, mix))) for seed, mix in enumerate(CACHES)])
    assert min(given, kept) > 0


@pytest.mark.parametrize("mix", [Mix(4), CACHES[1], CACHES[5]], ids=str)
def test_a_storm_leaves_nothing(mix: Mix) -> None:
    """Everybody ends; nothing is owned, and no store was asked for anything."""
    shape = recut(storm_shape(), mix, random.Random("storm 3"), guests=3)
    world = Storm(3, REQUESTS, alone(shape)).run()
    stats = world.engine.stats()
    assert REQUESTS == world.arrivals == world.ends["finished"] + world.ends["aborted"]
    assert ({}, 0, 0, 0) == (stats.owned, stats.live_machines, stats.fetched, stats.stored_pages)
    assert 0 < stats.spliced


@pytest.mark.soak
@pytest.mark.parametrize("policy", list(WritePolicy))
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_many_walks_end_well(first: int, policy: WritePolicy) -> None:
    """Two hundred seeds of each policy, with other components and without."""
    for seed in range(first, first + 20):
        walk(seed, 400, alone(drawn(seed), policy))
        walk(seed, 400, alone(mixed(seed), policy))
