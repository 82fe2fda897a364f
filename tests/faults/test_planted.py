"""Bugs planted in the live engine: each is found by a walk of the World, and the untouched engine shows none.

A fault is a small, likely slip in one effect or decision. Where the books alone would show it at once, it is made to
keep the books, so that what finds it is the World's own knowledge.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from stagehold.cache.holds import EMPTY, Hold, Holds
from stagehold.cache.tree import Tree
from stagehold.lifecycle import splicing
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.claims import ClaimRules
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.holds import ENDS, HoldRules
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.tick import Tick
from stagehold.lifecycle.visits import Visits
from stagehold.lifecycle.writes import WriteRules
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Commit, Fetched
from stagehold.testing.rules import WorldRules
from stagehold.testing.shapes import drawn
from stagehold.testing.steps import Walk
from stagehold.testing.world import World

STEPS = 20_000
STEPS_OF_ONE_WORLD = 500
STEPS_OF_AN_EXAMPLE = 40

Patch = pytest.MonkeyPatch
FAULTS: dict[str, Callable[[Patch], None]] = {}


def fault(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    FAULTS[plant.__name__] = plant
    return plant


def around(patch: Patch, owner: type, name: str, after: Callable[..., None]) -> None:
    """Let `after(self, m, result)` follow on a method of an effect."""
    real = getattr(owner, name)

    def patched(self, m, *args, **kwargs):
        result = real(self, m, *args, **kwargs)
        after(self, m, result)
        return result

    patch.setattr(owner, name, patched)


# Resources


@fault
def a_pin_is_not_released_when_a_fetch_fails(patch):
    real = HoldRules._unpin

    def unpin(self, h):
        if h.state is HoldState.FETCHING:
            self.core.ledger.give("pin", h.number)
        else:
            real(self, h)

    patch.setattr(HoldRules, "_unpin", unpin)


@fault
def staging_is_released_twice_after_a_load(patch):
    def after(self, h, _result):
        self.core.staging.free(self.lent)

    real = HoldRules.loaded

    def loaded(self, h, arg):
        self.lent = list(h.data.staging)
        return real(self, h, arg)

    patch.setattr(HoldRules, "loaded", loaded)
    around(patch, HoldRules, "loaded", after)


@fault
def a_buffer_is_freed_at_the_cut(patch):
    def give_back(self, h):
        self.core.free_staging(self.core.stocks.spine, h.data.staging)
        h.data.staging = []
        self.core.ledger.change("staging", h.number, 0)

    around(patch, HoldRules, "cut_tail", lambda self, h, _: give_back(self, list(self.core.holds.values())[-1]))
    around(patch, HoldRules, "_abandon", lambda self, h, _: give_back(self, h))


@fault
def staging_is_given_back_while_its_copy_flies(patch):
    def after(self, h, _result):
        self.core.free_staging(self.core.stocks.spine, h.data.staging)
        h.data.staging = []
        self.core.ledger.change("staging", h.number, 0)

    around(patch, HoldRules, "load", after)


@fault
def a_copy_does_not_protect_its_source(patch):
    def hold_span(self, chain, start, end, **_options):
        return EMPTY[Hold.SPAN]

    patch.setattr(Tree, "hold_span", hold_span)


@fault
def a_pin_does_not_follow_a_split(patch):
    def split(self, upper, lower):
        upper.children = 1
        upper.held = 1 if lower.held else 0

    patch.setattr(Holds, "split", split)


@fault
def the_backlog_is_not_given_back_by_a_write_that_drains(patch):
    def let_drain(self, w, arg):
        self.core.beliefs.arrive(w.data.keys)
        return 0

    patch.setattr(WriteRules, "let_drain", let_drain)


@fault
def the_lock_stays_where_the_prefix_was(patch):
    patch.setattr(AdmissionRules, "move_lock", lambda self, data, pages: None)


@fault
def promises_are_forgotten_when_room_is_counted(patch):
    patch.setattr(Core, "room", lambda self: self.device.free_count + self.tree.evictable)


# Counting


@fault
def a_declined_retry_is_not_counted(patch):
    def after(self, m, _result):
        m.issues -= 1

    around(patch, LaunchRules, "decline", after)


@fault
def a_known_end_is_launched_uncounted(patch):
    def after(self, m, _result):
        m.issues -= 1

    around(patch, LaunchRules, "claim", after)


@fault
def a_deferral_is_not_counted(patch):
    real = AdmissionRules.unlock

    def unlock(self, m, arg):
        real(self, m, arg)
        if arg is not None and not self.core.committed:
            m.defers -= 1

    patch.setattr(AdmissionRules, "unlock", unlock)


@fault
def the_wait_clock_starts_anew_with_each_claim(patch):
    real = LaunchRules._open_claim

    def open_claim(self, m, start, last):
        m.data.wait_from = -1
        return real(self, m, start, last)

    patch.setattr(LaunchRules, "_open_claim", open_claim)


# Bytes


@fault
def pages_are_ready_before_they_are_verified(patch):
    def fetched(self, h, good):
        return Fetched.WHOLE if good >= self.core.config.threshold_pages else Fetched.NOTHING

    patch.setattr(HoldRules, "fetched", fetched)


@fault
def a_splice_forgets_what_the_tree_has_grown(patch):
    real = splicing.join

    def join(core, hold, chain, _low):
        real(core, hold, chain, hold.base)

    patch.setattr(splicing, "join", join)


@fault
def a_request_keeps_slots_that_a_sibling_published_first(patch):
    real = Core.insert

    def insert(self, chain, start, slots, others=None):
        real(self, chain, start, slots, others)
        return slots

    patch.setattr(Core, "insert", insert)


@fault
def a_commit_trusts_what_the_plan_saw(patch):
    real = Visits._commit_claim

    def commit_claim(self, m, plan):
        match, self.core.tree.full_match = self.core.tree.full_match, lambda *_: plan.live_pages
        try:
            return real(self, m, plan)
        finally:
            self.core.tree.full_match = match

    patch.setattr(Visits, "_commit_claim", commit_claim)


@fault
def a_part_of_a_delivery_is_taken_for_a_success(patch):
    real = AdmissionRules.commit

    def commit(self, m, visit):
        outcome = real(self, m, visit)
        return Commit.DELIVERED if outcome is Commit.PARTIAL and self.fits(m.data, visit.live) else outcome

    patch.setattr(AdmissionRules, "commit", commit)


# Who is told


@fault
def only_the_first_claimant_hears_that_a_hold_has_ended(patch):
    def announce(self, h, _arg):
        for number in h.data.claims[:1]:
            self.core.steps.request.hold_ended(self.core.requests[number], ENDS[HoldState(h.state)])
        if h.state is not HoldState.LOADING:
            self.core.holds.pop(h.number, None)

    patch.setattr(HoldRules, "announce", announce)


@fault
def a_failed_put_teaches_a_belief(patch):
    around(patch, WriteRules, "back_off", lambda self, w, _: self.core.beliefs.teach(w.data.keys))


@fault
def a_late_answer_reaches_whoever_asks_now(patch):
    def query_ended(self, operation):
        m = self.core.requests.get(operation.owner)
        if m is not None:
            self.core.steps.request.answer(m, operation.good)

    patch.setattr(Tick, "_query_ended", query_ended)


@fault
def the_last_claim_leaves_without_dropping_the_hold(patch):
    patch.setattr(ClaimRules, "_give_hold_back", lambda self, hold, *, was_visitor: None)


def search(steps: int) -> tuple[int, Exception | None]:
    """Walk one World after the other; the acts that it took to find something, and what it was."""
    walked, seed = 0, 0
    while walked < steps:
        world = None
        try:
            world = World(seed, drawn(seed))
            Walk(world).run(STEPS_OF_ONE_WORLD)
            world.quiesce()
            world.close()
        except Exception as error:  # noqa: BLE001 - whatever stops a run is a find
            return walked + (len(world.acts) if world else 0), error
        walked += len(world.acts)
        seed += 1
    return walked, None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    """Each planted fault stops a walk within twenty thousand acts."""
    FAULTS[name](monkeypatch)
    steps, error = search(STEPS)
    print(f"{name}: {steps} acts, {error!r}")  # noqa: T201 - shown by pytest -s
    assert error is not None


@pytest.mark.parametrize("name", ["staging_is_released_twice_after_a_load", "a_buffer_is_freed_at_the_cut",
                                  "promises_are_forgotten_when_room_is_counted"])  # fmt: skip
def test_the_rule_machine_finds_it_too(name: str, monkeypatch: Patch) -> None:
    """Hypothesis finds the fault within as many rule steps."""
    FAULTS[name](monkeypatch)
    WorldRules.steps = 0
    chosen = settings(
        max_examples=STEPS // STEPS_OF_AN_EXAMPLE,
        stateful_step_count=STEPS_OF_AN_EXAMPLE,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    with pytest.raises(Exception):  # noqa: B017 - whatever stops a run is a find
        run_state_machine_as_test(WorldRules, settings=chosen)
    assert 0 < WorldRules.steps <= STEPS


def test_the_untouched_engine_shows_nothing() -> None:
    """The same walks find nothing where nothing was planted."""
    steps, error = search(STEPS)
    assert (True, None) == (steps >= STEPS, error)


def test_at_least_twelve_faults_are_planted() -> None:
    """The list does not shrink unseen."""
    assert 12 <= len(FAULTS)
