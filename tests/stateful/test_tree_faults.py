"""Faults planted in the live tree, each of which the rule machine must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test

from stagehold.cache.components.base import Component
from stagehold.cache.components.state import Checkpoints
from stagehold.cache.components.swa import SlidingWindow
from stagehold.cache.holds import Holds
from stagehold.cache.keys import Namespace
from stagehold.cache.match import Index
from stagehold.cache.recency import LeafLRU
from stagehold.cache.tree import Tree
from stagehold.testing.tree_rules import TreeRules, rule_settings

Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, Plant] = {}


def fault(plant: Plant) -> Plant:
    FAULTS[plant.__name__] = plant
    return plant


@fault
def a_tombstone_is_forgotten(patch):
    def bare(self, node):
        node.cells[self.at].locks += 0
        self.evictable -= len(node.cells[self.at].slots)
        self._cut(node)

    patch.setattr(SlidingWindow, "bare", bare)


@fault
def a_tombstone_does_not_spoil_the_window_behind_it(patch):
    def retreat(self, node, at):
        return (node, at) if not at or node.cells[self.at].slots else (node.parent, node.start)

    patch.setattr(SlidingWindow, "retreat", retreat)


@fault
def the_window_is_a_page_short(patch):
    patch.setattr(
        SlidingWindow, "retreat", lambda self, node, at, true=SlidingWindow.retreat: _short(self, node, at, true)
    )


def _short(self, node, at, true):
    self.pages -= 1
    try:
        return true(self, node, at)
    finally:
        self.pages += 1


@fault
def a_split_drops_a_pin(patch):
    def split(self, upper, lower):
        upper.children, upper.held = 1, 1 if lower.held else 0

    patch.setattr(Holds, "split", split)


@fault
def a_split_copies_the_count_of_holds(patch):
    def split(self, upper, lower, true=Holds.split):
        true(self, upper, lower)
        upper.held = lower.held

    patch.setattr(Holds, "split", split)


@fault
def a_split_forgets_the_window_locks(patch):
    def split(self, upper, lower, true=Component.split):
        true(self, upper, lower)
        upper.cells[self.at].locks = 0

    patch.setattr(Component, "split", split)


@fault
def a_probe_touches_recency(patch):
    def full_match(self, chain, limit=None):
        node, live = self.index.locate(chain, self.limit(chain, limit))
        if live and node.end == live:
            self.order.used(node)
        return live

    patch.setattr(Tree, "full_match", full_match)


@fault
def namespaces_are_mixed(patch):
    patch.setattr(Namespace, "digest", lambda self, page_size: bytes(32))


@fault
def a_parent_does_not_learn_the_use_of_its_child(patch):
    def removed(self, node, parent):
        self._unlink(node)

    patch.setattr(LeafLRU, "removed", removed)


@fault
def an_unlocked_leaf_is_not_offered_again(patch):
    patch.setattr(LeafLRU, "offer", lambda self, leaf: None)


@fault
def a_hint_is_believed(patch):
    def search(self, chain, high, true=Index._search):
        hint = chain.hint
        node = self.pages.get(chain.keys[hint - 1]) if 0 < hint < high else None
        return true(self, chain, high) if node is None else (node, hint)

    patch.setattr(Index, "_search", search)


@fault
def a_pin_is_charged_for_each_hold(patch):
    def pin(self, node, true=Holds.pin):
        before = self.pinned
        receipt = true(self, node)
        self.pinned = before + node.end
        return receipt

    patch.setattr(Holds, "pin", pin)


@fault
def a_checkpoint_outlives_the_tail_it_belongs_to(patch):
    patch.setattr(Checkpoints, "trimmed", lambda self, node, pages: None)


@fault
def a_lock_survives_the_window_that_it_counted(patch):
    patch.setattr(Component, "_kill", lambda self, node: None)


@fault
def a_use_leaves_the_window_where_it_was(patch):
    patch.setattr(SlidingWindow, "touch", lambda self, node: None)


@fault
def a_shortened_leaf_stays_in_the_index(patch):
    def shorten(self, node, end, true=Index.shorten):
        gone = true(self, node, end)
        for key in gone:
            self.pages[key] = node
        return gone

    patch.setattr(Index, "shorten", shorten)


@pytest.mark.parametrize("name", FAULTS)
def test_the_rule_machine_finds_a_planted_fault(name, monkeypatch, capsys):
    """With the fault in place some answer, total or count differs, or the tree itself says so."""
    FAULTS[name](monkeypatch)
    # Constants of the modules that are loaded colour what is drawn, so how soon it is found depends on other tests.
    settings = rule_settings(60_000, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False)
    with pytest.raises(Exception) as found:
        run_state_machine_as_test(TreeRules, settings=settings)
    assert "hypothesis" not in type(found.value).__module__
    capsys.readouterr()
