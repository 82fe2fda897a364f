"""The real engine among siblings, faults and restarts: nothing breaks, and everything that can happen does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from stagehold import AdmissionOutcome, Skip, SkipReason
from stagehold.specs.outcomes import Thrown
from stagehold.testing import visiting, watched
from stagehold.testing.content import Prompt
from stagehold.testing.marks import Marks, all_losses, all_rows, all_states
from stagehold.testing.rules import WorldRules
from stagehold.testing.shapes import drawn, small
from stagehold.testing.steps import Walk, walk
from stagehold.testing.visiting import Ending
from stagehold.testing.watch import WorldBroken
from stagehold.testing.world import World

RULE_STEPS = 20_000
SEEDS = range(100)
ACTS = 600

UNREACHABLE = {
    "request.anchor_lost.abort": "the state is left in the cascade that entered it; no caller ever sees it",
    "hold.parked.io_commit.OVERSIZE": "a claim is cut to what staging can give when it is opened",
    "write.offered.offer.KEYLESS": "only whole pages are published, and each of them has a key",
    "write.offered.offer.NEVER_FITS": "an offer is cut into pieces that staging can give",
    "write.offered.drop": "the state is left in the call that entered it; no decree comes between",
}
"""Rows that no run can take, each with its reason."""

UNREACHABLE_LOSSES = {"oversize": "as the row OVERSIZE of a hold"}

UNREACHABLE_SKIPS = {SkipReason.RETRY_NOW: "a bound on the looks of one visit: no way through the states is so long"}


def test_no_list_of_acts_breaks_the_engine() -> None:
    """Twenty thousand rule steps, each of several acts: nothing is found, and everything ends."""
    WorldRules.steps = 0
    run_state_machine_as_test(
        WorldRules,
        settings=settings(
            max_examples=240,
            stateful_step_count=100,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert WorldRules.steps >= RULE_STEPS


@pytest.fixture(scope="module")
def marks() -> Marks:
    """What the walks of all seeds reached."""
    reached = Marks()
    for seed in SEEDS:
        reached.update(walk(seed, ACTS).marks)
    return reached


def test_every_state_is_reached(marks: Marks) -> None:
    """Every state of request, hold, write, store and attachment, so every way to end, too."""
    assert [] == [state for state in all_states() if not marks.states[state]]


def test_every_row_is_taken_but_those_that_cannot_be(marks: Marks) -> None:
    """Each declared row was taken by some walk, or stands in the list with its reason."""
    assert set(UNREACHABLE) == {row for row in all_rows() if not marks.rows[row]}
    assert len(UNREACHABLE) <= 12


def test_tokens_are_lost_in_every_way_there_is(marks: Marks) -> None:
    """Each end of a queried token was met."""
    assert set(UNREACHABLE_LOSSES) == {loss for loss in all_losses() if not marks.losses[loss]}


def test_the_scheduler_is_given_every_answer(marks: Marks) -> None:
    """Every outcome of an admission, and every reason to be skipped that there can be."""
    outcomes = {f"admission.{outcome}" for outcome in (*AdmissionOutcome, "partial")}
    reasons = {f"skip.{reason}" for reason in SkipReason if reason not in UNREACHABLE_SKIPS}

    assert outcomes | reasons == {note for note in marks.notes if note.startswith(("admission.", "skip."))}


def test_pages_are_read_for_nothing_in_every_way_there_is(marks: Marks) -> None:
    """By name, as an engine's figures have them."""
    assert {f"thrown.{way}" for way in Thrown} == {note for note in marks.notes if note.startswith("thrown.")}


def test_a_flush_is_done_and_refused(marks: Marks) -> None:
    """Both answers to a flush were met."""
    assert 0 < min(marks.notes["flush.done"], marks.notes["flush.refused"])


@pytest.mark.parametrize("seed", [3, 11])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """Two walks of one seed do the same acts and write the same log."""
    first, again = walk(seed, 300), walk(seed, 300)

    assert first.acts == again.acts
    assert first.engine.digest() == again.engine.digest()


def test_a_run_is_repeated_by_its_program() -> None:
    """The lines that a World prints of itself lead another one to the same log."""
    first, again = World(5, drawn(5)), World(5, drawn(5))
    Walk(first).run(300)

    exec(first.program(), {"world": again, "Prompt": Prompt, **vars(visiting), **vars(watched)})

    assert first.engine.digest() == again.engine.digest()


def test_a_restored_world_goes_on_as_it_went_before() -> None:
    """The same acts after a restoration give the same state, to the last node of the tree."""
    world = World(7, drawn(7))
    Walk(world).run(200)
    world.tick()
    saved = world.snapshot()
    digests = []
    for _ in range(2):
        for who in range(20):
            world.tick()
            world.visit(who, Ending.COMMIT)
            world.compute(who, 9)
        digests.append(world.digest())
        world.restore(saved)

    assert digests[0] == digests[1] != world.digest()


def test_a_digest_knows_neither_ticks_nor_names() -> None:
    """Two moments that go on alike have one digest, and an act that matters changes it."""
    early, late = World(1, small()), World(1, small())
    late.arrivals = 30
    for world, ticks in ((early, 30), (late, 41)):
        for _ in range(ticks):
            world.tick()
        world.arrive(Prompt(2, 30))

    assert early.digest() == late.digest()
    late.visit(0, Ending.COMMIT)
    assert early.digest() != late.digest()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_long_walks_break_nothing(seed: int) -> None:
    """A million acts in all."""
    walk(seed, 2_500)


def broken(acts: Callable[[World], object]) -> str:
    with pytest.raises(WorldBroken) as caught:
        acts(World(1, small()))
    return str(caught.value)


def test_a_wedge_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is never given a plan makes `quiesce` give up at its bound."""

    def wedge(world: World) -> None:
        world.arrive(Prompt(0, 9))
        monkeypatch.setattr(world.engine, "select", lambda handle, _: Skip(handle, SkipReason.RETRY_NOW))
        world.quiesce()

    assert "not everything has ended" in broken(wedge)


def test_a_wrong_byte_is_reported() -> None:
    """One flipped bit on the device is seen at the next read."""

    def spoil(world: World) -> None:
        world.arrive(Prompt(0, 9))
        world.visit(0, Ending.COMMIT)
        world.compute(0, 5)
        world.core.tensors.device.tensor[0, world.engine.page_slots(world.guests[0].handle)[1], 0] ^= 1
        world.compute(0, 2)

    assert "wrong bytes at tokens [4]" in broken(spoil)


def test_a_request_that_the_engine_forgets_is_reported() -> None:
    """A guest that is alive for the World must be alive for the engine."""

    def forget(world: World) -> None:
        world.arrive(Prompt(0, 9))
        world.engine.abort(world.guests[0].handle)
        world.tick()

    assert "alive are []" in broken(forget)
