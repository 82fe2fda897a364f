"""Limits: every name that a declaration uses, and relations that cannot work."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stagehold.machines import MACHINES
from stagehold.specs.limits import Limits


def test_every_limit_that_a_machine_names_has_a_value() -> None:
    """Deadlines, counters and clocks."""
    named = {state.deadline.limit for spec in MACHINES for state in spec.states if state.deadline is not None}
    named |= {limit for spec in MACHINES for limit in spec.counters.values()}
    named |= {row.clock for spec in MACHINES for row in spec.rows if row.clock is not None}
    assert all(getattr(Limits(), name) > 0 for name in named)


@pytest.mark.parametrize(
    ("limits", "intervals"),
    [
        (Limits(), [8, 8, 16, 32, 64, 128, 128]),
        (Limits(retry_interval_cap=20), [8, 8, 16, 20, 20, 20, 20]),
        (Limits(retry_interval_ticks=0), [0] * 7),
    ],
)
def test_intervals_double_up_to_the_cap(limits: Limits, intervals: list[int]) -> None:
    """After no, one, two, ... launches; zero stays zero, and a long life overflows nothing."""
    assert [limits.retry_interval(issues) for issues in range(7)] == intervals
    assert limits.retry_interval(10**9) == intervals[-1]


def test_the_issue_limit_is_the_first_launch_and_its_re_issues() -> None:
    """No re-issue leaves one launch."""
    assert Limits().issue_limit == 9
    assert Limits(retry_max_reissues=0).issue_limit == 1


@pytest.mark.parametrize(
    ("update", "says"),
    [
        ({"open_limit": 4096}, "open_limit=4096 exceeds open_limit_cap=2048"),
        ({"retry_interval_ticks": 200}, "retry_interval_ticks=200 exceeds retry_interval_cap=128"),
        ({"wait_base_ticks": 600}, "wait_base_ticks=600 exceeds wait_cap_ticks=512"),
        ({"lookup_limit": 0}, "greater than or equal to 1"),
        ({"lookup_limits": 5}, "Extra inputs are not permitted"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_with_the_numbers(update: dict[str, int], says: str) -> None:
    """Unknown names are refused, too."""
    with pytest.raises(ValidationError, match=says):
        Limits(**update)


def test_limits_are_frozen() -> None:
    """An engine's limits do not change under it."""
    with pytest.raises(ValidationError, match="frozen"):
        Limits().lookup_limit = 3
