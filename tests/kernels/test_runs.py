"""Runs cut a copy into as few calls as its indices allow."""

import pytest

from stagehold.kernels.runs import runs


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([], [], []),
        ([3], [7], [(3, 7, 1)]),
        ([3, 4, 5], [7, 8, 9], [(3, 7, 3)]),
        ([3, 4, 5], [7, 8, 2], [(3, 7, 2), (5, 2, 1)]),
        ([3, 5, 6], [7, 8, 9], [(3, 7, 1), (5, 8, 2)]),
        ([5, 4, 3], [1, 2, 3], [(5, 1, 1), (4, 2, 1), (3, 3, 1)]),
        (range(3), [4, 5, 0], [(0, 4, 2), (2, 0, 1)]),
    ],
)
def test_a_run_goes_on_while_both_sides_do(ours, theirs, expected):
    """Every index once, in order, and no stretch that could have been longer."""
    assert expected == list(runs(ours, theirs))
