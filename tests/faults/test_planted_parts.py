"""Bugs planted in what an engine does for components beside the tree's own: walks of the World find each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagehold.cache.components.base import Component
from stagehold.cache.components.shares import StateShare, WindowShare
from stagehold.lifecycle import splicing
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.core import Core
from stagehold.testing.mixes import mixed
from stagehold.testing.steps import Walk
from stagehold.testing.world import World

STEPS = 15_000
STEPS_OF_ONE_WORLD = 300

Patch = pytest.MonkeyPatch
FAULTS: dict[str, Callable[[Patch], None]] = {}


def fault(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    FAULTS[plant.__name__] = plant
    return plant


# Bytes


@fault
def a_page_of_a_window_is_not_repaired(patch):
    real = splicing.load

    def load(core, stock, pages, slots):
        spared = 0 if stock is core.stocks.spine else 1
        real(core, stock, pages[spared:], slots[spared:])

    patch.setattr(splicing, "load", load)


@fault
def a_window_is_filled_from_the_wrong_staging_pages(patch):
    real = splicing.staged

    def staged(hold, name, spans, *, per_page):
        pages = real(hold, name, spans, per_page=per_page)
        return pages[1:] + pages[:1]

    patch.setattr(splicing, "staged", staged)


@fault
def a_checkpoint_is_not_copied_before_it_is_used(patch):
    patch.setattr(StateShare, "opening", lambda self: [])


@fault
def a_checkpoint_is_computed_in(patch):
    def opening(self):
        self.slots = self._source or self.slots
        return []

    patch.setattr(StateShare, "opening", opening)


@fault
def a_state_that_began_in_the_middle_is_taken_for_a_checkpoint(patch):
    patch.setattr(StateShare, "fresh", lambda self, *, whole: int(whole))


# Protection


@fault
def a_window_is_not_locked(patch):
    def lock(self, chain, pages, own=None, *, whole=False):
        return self.tree.lock(chain, pages, firsts={part.name: pages for part in self.stocks.parts}, own=own)

    patch.setattr(Core, "lock", lock)


@fault
def a_window_page_is_given_back_while_it_is_read(patch):
    real = WindowShare.outlived
    patch.setattr(WindowShare, "outlived", lambda self, page: real(self, page + 1))


# Arithmetic


@fault
def a_tombstone_does_not_count_as_missing(patch):
    real = Component.missing

    def missing(self, node, live, span):
        return [one for one in real(self, node, live, span) if one.end > live or not self.per_page]

    patch.setattr(Component, "missing", missing)


@fault
def an_admission_forgets_the_pools_of_components(patch):
    def only_the_tree(name):
        real = getattr(AdmissionRules, name)

        def fits(self, *args):
            others, self.core.stocks.others = self.core.stocks.others, ()
            try:
                return real(self, *args)
            finally:
                self.core.stocks.others = others

        patch.setattr(AdmissionRules, name, fits)

    only_the_tree("fits")
    only_the_tree("_fits_spliced")


def search(steps: int) -> tuple[int, Exception | None]:
    """Walk one World after the other; the acts that it took to find something, and what it was."""
    walked, seed = 0, 0
    while walked < steps:
        world = World(seed, mixed(seed))
        try:
            Walk(world).run(STEPS_OF_ONE_WORLD)
            world.quiesce()
            world.close()
        except Exception as error:  # noqa: BLE001 - whatever stops a run is a find
            return walked + len(world.acts), error
        walked += len(world.acts)
        seed += 1
    return walked, None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    """Each planted fault stops a walk of worlds of several components."""
    FAULTS[name](monkeypatch)
    steps, error = search(STEPS)
    print(f"{name}: {steps} acts, {error!r}")  # noqa: T201 - shown by pytest -s
    assert error is not None
