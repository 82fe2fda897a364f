"""A copy lane on the CPU: done at once, told at the next poll."""

import copy

import pytest

from stagehold.kernels.lanes import CopyLane


def test_a_copy_runs_at_submission_and_is_told_by_the_next_poll():
    """Program order holds, and nothing is reported before it is asked for."""
    lane, done = CopyLane(), []
    ticket = lane.submit(lambda: done.append(1))
    assert done == [1]
    assert lane.in_flight() == [ticket]
    assert lane.poll() == [ticket]
    assert lane.poll() == []


def test_tickets_ascend_and_finish_in_order():
    """Three copies, three tickets, one poll."""
    lane = CopyLane()
    assert [lane.submit(lambda: None) for _ in range(3)] == [0, 1, 2]
    assert lane.drain() == [0, 1, 2]
    assert lane.in_flight() == []


def test_a_copy_that_raises_leaves_no_ticket():
    """The error reaches the caller, and the lane goes on."""
    lane = CopyLane()
    with pytest.raises(ZeroDivisionError):
        lane.submit(lambda: 1 // 0)
    assert lane.in_flight() == []
    assert lane.submit(lambda: None) == 0


def test_a_lane_on_the_cpu_can_be_copied():
    """A snapshot of the engine has its own lane."""
    lane = CopyLane()
    lane.submit(lambda: None)
    other = copy.deepcopy(lane)
    assert other.poll() == lane.poll() == [0]
