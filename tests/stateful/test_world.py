"""The real engine among siblings, faults and restarts: nothing breaks, and everything that can happen does."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from stagehold.testing.rules import WorldRules

STEPS = 5_000


def test_no_list_of_acts_breaks_the_engine() -> None:
    """Five thousand rule steps, each of several acts: nothing is found, and everything ends."""
    WorldRules.steps = 0
    run_state_machine_as_test(
        WorldRules,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert STEPS <= WorldRules.steps
