"""Worlds of several components: every byte of each of them, in pages, windows and modes of every kind."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from stagehold.specs.outcomes import HostMode
from stagehold.testing.checks import device_bytes
from stagehold.testing.content import Prompt
from stagehold.testing.marks import Marks
from stagehold.testing.mixes import KINDS, PAGES, PAIRWISE, WINDOWS, Mix, every_mix, mix_of, mixed, recut
from stagehold.testing.rules import MixRules
from stagehold.testing.scenes import PART_SCENES
from stagehold.testing.shapes import small
from stagehold.testing.steps import walk
from stagehold.testing.storm import Storm, storm_shape
from stagehold.testing.visiting import Ending
from stagehold.testing.watch import WorldBroken
from stagehold.testing.watch_parts import REACHED
from stagehold.testing.world import World

REQUESTS = 80
SEEDS = range(20)
ACTS = 300
RULE_STEPS = 4_000


def storm_of(mix: Mix, seed: int, requests: int) -> World:
    """A storm in the storm's own world, cut for a combination."""
    shape = recut(storm_shape(), mix, random.Random(f"storm {seed}"), guests=3)
    return Storm(seed, requests, shape).run()


@pytest.fixture(scope="module")
def marks() -> Marks:
    """What storms and walks of this module reached."""
    return Marks()


@pytest.mark.parametrize("mix", PAIRWISE, ids=str)
def test_a_storm_leaves_nothing(mix: Mix, marks: Marks) -> None:
    """Everybody ends, no byte was wrong on the way, and nothing is owned but the link."""
    world = storm_of(mix, 3, REQUESTS)
    stats = world.engine.stats()

    assert REQUESTS == world.arrivals == world.ends["finished"] + world.ends["aborted"]
    assert ({"link": 1}, 0) == (stats.owned, stats.live_machines)
    assert 0 < stats.spliced
    marks.update(world.marks)


def test_walks_end_well_and_reach_what_they_are_for(marks: Marks) -> None:
    """Nothing breaks; and windows were lost, repaired, fetched alone, missed, and waited for, each of them."""
    for seed in SEEDS:
        marks.update(walk(seed, ACTS, mixed(seed)).marks)
    for mix in PAIRWISE:
        if mix.window == "above":
            marks.update(scenes_of(mix, 4).marks)

    assert set() == set(REACHED) - set(marks.notes)


def scenes_of(mix: Mix, seed: int) -> World:
    """The scenes that are about components, one after the other, in a world that misbehaves in nothing."""
    dice = random.Random(f"scenes {seed}")
    world = World(seed, recut(small(), mix, dice))
    for scene in PART_SCENES * 6:
        scene(world, dice)
    world.quiesce()
    world.close()
    return world


def test_no_list_of_acts_breaks_an_engine_of_several_components() -> None:
    """Rule steps over all combinations, drawn from the seed: nothing is found, and everything ends."""
    MixRules.steps = 0
    run_state_machine_as_test(
        MixRules,
        settings=settings(
            max_examples=100,
            stateful_step_count=50,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert MixRules.steps >= RULE_STEPS


def spoil(world: World, component: str) -> None:
    """Flip a byte that the running guest reads next."""
    guest = world.running[0]
    slot = world.engine.page_slots(guest.handle, None if component == "full" else component)[-1]
    device_bytes(world.engine, component).tensor[0, slot, 0] ^= 1


@pytest.mark.parametrize(("component", "said"), [("full", "wrong bytes at tokens [8] of full"),
                                                 ("swa", "wrong bytes at tokens [8] of swa"),
                                                 ("state", "wrong state behind token 10")])  # fmt: skip
def test_a_wrong_byte_of_any_component_is_reported(component: str, said: str) -> None:
    """One flipped bit on the device is seen at the next read."""
    world = World(1, recut(small(), Mix(4, "swa+state", "above"), random.Random(1)))
    world.arrive(Prompt(0, 20))
    world.visit(0, Ending.COMMIT)
    world.compute(0, 10)
    spoil(world, component)
    with pytest.raises(WorldBroken) as caught:
        world.compute(0, 2)
    assert said in str(caught.value)


def test_a_wrong_byte_in_host_memory_is_reported() -> None:
    """Pages that are kept are looked at when everything has ended."""
    world = World(1, recut(small(), Mix(4, "swa", "above", HostMode.CACHE), random.Random(1)))
    while not world.core.attached:
        world.tick()
    world.arrive(Prompt(0, 20))
    world.visit(0, Ending.COMMIT)
    world.compute(0, 20)
    world.quiesce()
    stock = world.core.stocks.others[0]
    assert 0 < len(stock.host)
    world.core.bytes[stock.name].page(stock.host.pages()[0])[0] ^= 1
    with pytest.raises(WorldBroken, match="is kept in host memory, and is wrong"):
        world.check_rest()


def test_twelve_worlds_meet_every_window_in_every_page() -> None:
    """All pairs with a window: of its size with page, kinds and mode; and each page in both modes."""
    assert len(PAIRWISE) <= 12
    windowed = [mix for mix in PAIRWISE if mix.has_window]
    sizes = {(mix.page_size, mix.window) for mix in windowed}
    assert set(product(PAGES, WINDOWS)) - {(1, "below")} == sizes
    assert set(product(WINDOWS, KINDS)) - {(mix.window, mix.kinds) for mix in windowed} == {
        (window, kinds) for window in WINDOWS for kinds in ("full", "state")
    }
    assert set(product(WINDOWS, HostMode)) == {(mix.window, mix.mode) for mix in windowed}
    assert set(product(PAGES, HostMode)) == {(mix.page_size, mix.mode) for mix in PAIRWISE}
    assert {"swa", "state", "swa+state"} == {mix.kinds for mix in PAIRWISE}
    assert {True, False} == {mix.gates for mix in PAIRWISE}


def test_seeds_draw_all_kinds() -> None:
    """The seeds of the rule machine draw every page size, every kind and every window."""
    drawn = [mix_of(seed) for seed in range(500)]

    assert set(PAGES) == {mix.page_size for mix in drawn}
    assert set(KINDS) - {"full"} == {mix.kinds for mix in drawn}
    assert set(WINDOWS) == {mix.window for mix in drawn}


@pytest.mark.soak
@pytest.mark.parametrize("mix", list(every_mix()), ids=str)
def test_no_combination_breaks_in_the_long_run(mix: Mix) -> None:
    """A storm and a long walk for each of them."""
    storm_of(mix, 5, 1_000)
    for seed in (11, 12):
        walk(seed, 2_000, mixed(seed, mix))
