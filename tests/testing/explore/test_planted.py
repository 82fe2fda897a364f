"""Protocol bugs planted in the live engine: the search finds each, and prints a short program that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stagehold.cache.holds import Holds
from stagehold.lifecycle.admission import Delivery
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.visits import Visits
from stagehold.lifecycle.writes import WriteRules
from stagehold.specs.outcomes import Fetched
from stagehold.testing.explore import WORLDS, Budget, SmallWorld, parse, play, search
from stagehold.testing.explore.pair import Pair

MOST_MOVES = 12
MOST_SITUATIONS = 6_000

Patch = pytest.MonkeyPatch
CALM = Budget(*(0 for _ in Budget()))._replace(total=1)
ALONE = replace(next(world for world in WORLDS if world.name == "alone"), budget=CALM)


def a_failed_fetch_leaves_its_pin(patch: Patch) -> SmallWorld:
    """A release is dropped: the books forget the pin, the tree does not."""

    def unpin(self, h):
        self.core.ledger.give("pin", h.number)
        h.data.pin = None

    patch.setattr(HoldRules, "_unpin", unpin)
    return replace(ALONE, budget=CALM._replace(fault=1))


def pages_are_ready_before_they_are_verified(patch: Patch) -> SmallWorld:
    """An early publication."""
    patch.setattr(HoldRules, "fetched", lambda self, h, good: Fetched.WHOLE)
    return replace(ALONE, budget=CALM._replace(fault=1))


def a_commit_trusts_what_the_plan_saw(patch: Patch) -> SmallWorld:
    """A stale plan: the sibling that published in between is not seen."""
    real = Visits._delivery

    def delivery(self, m, hold, plan):
        now = real(self, m, hold, plan)
        return Delivery(plan.live_pages, plan.live_pages, now.promised, now.delivered)

    patch.setattr(Visits, "_delivery", delivery)
    return replace(ALONE, siblings=(((1, 2, 5), 2),), budget=CALM._replace(sibling=1))


def a_pin_does_not_follow_a_split(patch: Patch) -> SmallWorld:
    """The upper half of a pinned node is charged to nobody."""
    real = Holds.split

    def split(self, upper, lower):
        real(self, upper, lower)
        self.pinheld.pop(upper, None)

    patch.setattr(Holds, "split", split)
    return replace(ALONE, live=(2,), siblings=(((1, 5), 2),), budget=CALM._replace(sibling=1))


def a_retry_is_not_cleared_by_an_abort(patch: Patch) -> SmallWorld:
    """Who has gone still waits for the write of his pages."""
    real = RetryRules.leave_retry

    def leave_retry(self, m):
        waiting = dict(self.waiting.get(m.data.wanted, {}))
        real(self, m)
        if waiting:
            self.waiting[m.data.wanted] = waiting

    patch.setattr(RetryRules, "leave_retry", leave_retry)
    return replace(ALONE, stored=(0,), believed=False, budget=CALM._replace(abort=1))


def a_put_that_fails_teaches(patch: Patch) -> SmallWorld:
    """A belief is taught on failure."""
    real = WriteRules.back_off

    def back_off(self, w, good):
        self.core.beliefs.teach(w.data.keys)
        return real(self, w, good)

    patch.setattr(WriteRules, "back_off", back_off)
    return replace(ALONE, stored=(0,), believed=False, budget=CALM._replace(fault=1))


def a_cut_goes_by_what_this_rank_has(patch: Patch) -> SmallWorld:
    """A branch on a fact that no exchange has agreed on."""

    def usable(self, h):
        operation = self.core.operations.live.get(h.data.operation)
        good = 0 if operation is None else int(self.core.operations._local[1, operation.place])
        return self._can_keep(h.data, good)

    patch.setattr(HoldRules, "usable", usable)
    return replace(ALONE, budget=CALM._replace(lag=1, late=1, total=2))


PLANTED: tuple[Callable[[Patch], SmallWorld], ...] = (
    a_failed_fetch_leaves_its_pin,
    pages_are_ready_before_they_are_verified,
    a_commit_trusts_what_the_plan_saw,
    a_pin_does_not_follow_a_split,
    a_retry_is_not_cleared_by_an_abort,
    a_put_that_fails_teaches,
    a_cut_goes_by_what_this_rank_has,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_search_finds_it_and_its_program_shows_it(monkeypatch: Patch, plant: Callable[[Patch], SmallWorld]) -> None:
    """The bug is found, its program of at most twelve moves repeats it, and the untouched engine passes that."""
    with monkeypatch.context() as patch:
        world = plant(patch)
        found = search(world, MOST_SITUATIONS)

        assert not found.holds, f"{found.states} situations, and nothing was found"
        assert 0 < len(found.program) - 1 <= MOST_MOVES
        assert again(found.program, world) != ""

    assert again(found.program, world) == ""


def again(program: tuple[str, ...], world: SmallWorld) -> str:
    """What a program breaks when it is run once more; nothing if it breaks nothing."""
    pair = Pair(world)
    try:
        play(pair, parse(program, [world])[1])
        if pair.ended:
            pair.rest()
    except Exception as error:  # noqa: BLE001 - whatever it raises is what was found
        return f"{type(error).__name__}: {error}"
    return ""
