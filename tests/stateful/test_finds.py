"""Bugs that a World has found, each as the shortest run that shows it."""

from __future__ import annotations

from stagehold import HostMode, PrefetchPolicy
from stagehold.specs.hold import HoldState
from stagehold.testing.content import Prompt
from stagehold.testing.shapes import WorldShape, small
from stagehold.testing.visiting import Ending
from stagehold.testing.watched import Delivers
from stagehold.testing.world import World


def attached(shape: WorldShape) -> World:
    """A World whose store has passed its self-test."""
    world = World(1, shape)
    while not world.core.attached:
        world.tick()
    return world


def until(world: World, state: HoldState) -> None:
    while state not in [h.state for h in world.core.holds.values()]:
        world.tick()


def test_a_prefix_that_grew_behind_an_open_plan_is_locked_when_nothing_is_delivered() -> None:
    """The lock of the plan reaches what was live then; an admission without the store takes what is live now."""
    world = attached(small())
    world.arrive(Prompt(0, 36), 0, 3)
    world.visit(0, Ending.COMMIT)
    world.arrive(Prompt(0, 36, 1, 8), 0, 3, stored=4)
    until(world, HoldState.READY)
    world.select(0)
    world.compute(0, 36)
    world.end(0, Ending.COMMIT, Delivers.NONE)
    world.finish(0)

    world.evict(40)

    assert world.running[0].computed == 36
    assert world.core.tree.full_match(world.running[0].chain) == 9


def test_a_write_whose_tail_was_evicted_before_it_starts_writes_the_rest() -> None:
    """Room is asked for what is still live of it."""
    world = attached(small(staging_pages=30))
    world.arrive(Prompt(0, 36))
    world.visit(0, Ending.COMMIT)
    world.compute(0, 36)
    world.finish(0)

    world.evict(1)

    world.quiesce()
    assert 8 == world.engine.stats().stored_pages


def test_a_plan_takes_no_pages_that_were_promised_to_those_who_run() -> None:
    """A claimant whose lock would leave running requests short is skipped until there is room."""
    world = attached(small(pin_fraction=0.0))
    world.arrive(Prompt(0, 36))
    world.visit(0, Ending.COMMIT)
    world.compute(0, 36)
    world.finish(0)
    world.arrive(Prompt(0, 36, 1, 24), 0, 3, stored=15)
    until(world, HoldState.READY)
    for stem in (0, 1):
        world.arrive(Prompt(stem, 68), 1, 4)
        world.visit(1, Ending.COMMIT)

    world.select(0)
    world.compute(0, 72)
    world.compute(0, 72)

    assert 1 == world.marks.notes["skip.no_room"]
    world.quiesce()


def test_a_snapshot_of_a_self_test_under_way_can_be_gone_back_to() -> None:
    """The store goes on writing to the buffer that it was lent, which the copy must not replace."""
    world = World(1, small())
    while not world.core.attached:
        world.rewind(6)
        world.tick()

    assert world.tick_number < 12


def test_what_a_hung_store_still_has_comes_back_after_another_was_attached() -> None:
    """Its operations end when it goes on, and give their buffers back."""
    world = attached(small(prefetch_policy=PrefetchPolicy.WAIT_COMPLETE, host_memory_mode=HostMode.BUFFER_ONLY))
    hung = world.store
    world.arrive(Prompt(0, 36), 0, 3, stored=9)
    until(world, HoldState.FETCHING)
    world.stall()
    world.detach()
    while world.engine.attachment.name != "DETACHED":
        world.tick()
    world.attach(True)
    assert 0 < world.core.staging.used
    assert [hung] == world.core.former

    hung.release()

    world.quiesce()
    assert [] == world.core.former
