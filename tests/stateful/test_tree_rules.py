"""The live tree against the naive reference model, under random rules, in each order of eviction."""

from __future__ import annotations

import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test

from stagehold.testing.tree_rules import QueueRules, TreeRules, rule_settings
from stagehold.testing.tree_shape import marks_of

ORDERS = pytest.mark.parametrize("rules", [TreeRules, QueueRules])


@ORDERS
def test_the_tree_answers_as_the_reference_model_for_five_thousand_steps(rules):
    """Equality of every answer, conservation of slots, no change by read-only calls; every mark was reached."""
    rules.done = 0
    rules.marks.clear()
    run_state_machine_as_test(rules, settings=rule_settings(8_000, derandomize=True))
    assert rules.done >= 5_000
    assert marks_of(rules.eviction) == {mark for mark in marks_of(rules.eviction) if rules.marks[mark]}


@pytest.mark.soak
@ORDERS
def test_the_tree_answers_as_the_reference_model_for_a_million_steps(rules):
    """The same rules, two hundred times as long."""
    rules.done = 0
    while rules.done < 1_000_000:
        run_state_machine_as_test(rules, settings=rule_settings(50_000, phases=[Phase.generate, Phase.shrink]))
