"""The live tree against the naive reference model, under random rules."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test

from stagehold.testing.tree_rules import TreeRules, rule_settings
from stagehold.testing.tree_shape import Mark


def test_the_tree_answers_as_the_reference_model_for_five_thousand_steps():
    """Equality of every answer, conservation of slots, no change by read-only calls; every mark was reached."""
    TreeRules.done = 0
    TreeRules.marks.clear()
    run_state_machine_as_test(TreeRules, settings=rule_settings(8_000, derandomize=True))
    assert TreeRules.done >= 5_000
    assert set(Mark) == {mark for mark in Mark if TreeRules.marks[mark]}


@pytest.mark.soak
def test_the_tree_answers_as_the_reference_model_for_a_million_steps():
    """The same rules, two hundred times as long."""
    TreeRules.done = 0
    while TreeRules.done < 1_000_000:
        run_state_machine_as_test(TreeRules, settings=rule_settings(50_000, phases=[Phase.generate, Phase.shrink]))
