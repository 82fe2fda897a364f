"""Faults planted in the eviction by S3-FIFO, each of which the rule machine must find."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test

from stagehold.cache.s3fifo import MAIN, PLACE, S3Fifo, _Queue
from stagehold.testing.tree_rules import QueueRules, rule_settings

FAULTS = {}


def fault(plant):
    FAULTS[plant.__name__] = plant
    return plant


@fault
def a_use_promotes_its_end_alone(patch):
    def promote(self, node, true=S3Fifo._promote):
        parent, node.parent = node.parent, node.parent.parent if node.parent.end else node.parent
        try:
            true(self, node)
        finally:
            node.parent = parent

    patch.setattr(S3Fifo, "_promote", promote)


@fault
def a_split_begins_in_small(patch):
    patch.setattr(S3Fifo, "split", lambda self, upper, lower: None)


@fault
def the_ghost_remembers_what_main_has_lost(patch):
    def removed(self, node, parent, true=S3Fifo.removed):
        self._remember(node.keys)
        true(self, node, parent)

    patch.setattr(S3Fifo, "removed", removed)


@fault
def a_lost_tail_is_not_remembered(patch):
    patch.setattr(S3Fifo, "shortened", lambda self, leaf, pages, keys: setattr(
        self, "small_pages", self.small_pages - (0 if leaf.stamp & MAIN else pages)))  # fmt: skip


@fault
def the_ghost_never_forgets(patch):
    def remember(self, keys):
        self._ghost.update(dict.fromkeys(reversed(keys)))

    patch.setattr(S3Fifo, "_remember", remember)


@fault
def a_place_is_not_inherited(patch):
    def removed(self, node, parent, true=S3Fifo.removed):
        place = parent.stamp // PLACE
        true(self, node, parent)
        parent.stamp = place * PLACE + parent.stamp % PLACE

    patch.setattr(S3Fifo, "removed", removed)


@fault
def main_goes_first_come_first_gone(patch):
    patch.setattr(S3Fifo, "_spent", lambda self: self._main.first())


@fault
def an_unlocked_leaf_is_not_offered_again(patch):
    patch.setattr(S3Fifo, "offer", lambda self, leaf: None)


@fault
def a_covered_parent_stays_where_it_was(patch):
    patch.setattr(S3Fifo, "covered", lambda self, parent: None)
    patch.setattr(_Queue, "first", lambda self: min(self.leaves.items(), default=(0, None))[1])


@pytest.mark.parametrize("name", FAULTS)
def test_the_rule_machine_finds_a_planted_fault(name, monkeypatch, capsys):
    """With the fault in place some answer, total or count differs, or the tree itself says so."""
    FAULTS[name](monkeypatch)
    settings = rule_settings(20_000, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False)
    with pytest.raises(Exception) as found:
        run_state_machine_as_test(QueueRules, settings=settings)
    assert "hypothesis" not in type(found.value).__module__
    capsys.readouterr()
