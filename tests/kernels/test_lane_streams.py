"""A lane with streams: what waits for what, whatever order the device does the rest in."""

from random import Random

import pytest

from stagehold.kernels.lanes import CopyLane


def copy_of(machine, done, name, steps):
    """A copy in steps, each of which is noted when the device does it."""

    def copy():
        for step in range(steps):
            machine.do(lambda step=step: done.append((name, step)))
            yield

    return copy


def test_nothing_is_reported_before_the_device_has_done_it(machine):
    """A ticket polled too early would free a buffer in flight."""
    lane, done = CopyLane("sim", machine), []
    lane.submit_steps(copy_of(machine, done, "a", 2))
    lane.submit_steps(copy_of(machine, done, "b", 1))
    assert ([], [0, 1], 0, 2) == (lane.poll(), lane.in_flight(), lane.finished, lane.submitted)
    stream = machine.all[1]
    while len(done) < 2:
        machine.run_one(machine.forward)
        machine.run_one(stream)
    assert ([], 0) == (lane.poll(), lane.finished)
    for _ in range(2):  # the events of the last step and of the whole copy
        machine.run_one(stream)
    assert ([0], [1], 1) == (lane.poll(), lane.in_flight(), lane.finished)


def test_draining_waits_for_all(machine):
    """And tells which."""
    lane, done = CopyLane("sim", machine), []
    for name in "abc":
        lane.submit_steps(copy_of(machine, done, name, 2))
    assert [0, 1, 2] == lane.drain()
    assert 6 == len(done)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_comes_behind_the_forward_before_it(machine, seed):
    """Which wrote the bytes to be saved, or read the slots to be overwritten."""
    lane, done = CopyLane("sim", machine), []
    machine.do(lambda: done.append("forward"))
    lane.submit(lambda: machine.do(lambda: done.append("copy")))
    machine.run(Random(seed))
    assert ["forward", "copy"] == done


@pytest.mark.parametrize("seed", range(20))
def test_a_save_comes_behind_the_loads_before_it_and_no_load_behind_a_save(machine, seed):
    """It may read what they bring."""
    loads, saves, done = CopyLane("sim", machine), CopyLane("sim", machine), []
    loads.submit_steps(copy_of(machine, done, "load", 2))
    saves.submit(lambda: machine.do(lambda: done.append(("save", 0))), behind=loads)
    loads.submit_steps(copy_of(machine, done, "next", 1))
    machine.run(Random(seed))
    assert done.index(("save", 0)) > done.index(("load", 1))


@pytest.mark.parametrize("seed", range(20))
def test_a_forward_reads_a_layer_when_its_loads_are_there(machine, seed):
    """Of the youngest copy the layers so far, of older ones all; later layers may still be on their way."""
    lane, done, seen = CopyLane("sim", machine), [], []
    lane.submit_steps(copy_of(machine, done, "old", 3))
    lane.submit_steps(copy_of(machine, done, "new", 3))
    for layer in range(3):
        lane.wait_step(layer)
        machine.do(lambda: seen.append(list(done)))
    machine.run(Random(seed))
    for layer in range(3):
        assert {("old", 0), ("old", 1), ("old", 2), *(("new", step) for step in range(layer + 1))} <= set(seen[layer])


def test_the_first_layer_waits_for_no_other(machine):
    """The device may compute it while the rest is loaded."""
    lane, done, seen = CopyLane("sim", machine), [], []
    lane.submit_steps(copy_of(machine, done, "new", 3))
    lane.wait_step(0)
    machine.do(lambda: seen.append(list(done)))
    while not seen:
        if not machine.run_one(machine.forward):
            machine.run_one(machine.all[1])
    assert [[("new", 0)]] == seen


def test_a_copy_of_fewer_steps_is_waited_for_as_a_whole(machine):
    """A layer beyond its last step is there when the copy is."""
    lane, done, seen = CopyLane("sim", machine), [], []
    lane.submit(lambda: machine.do(lambda: done.append("copy")))
    lane.wait_step(7)
    machine.do(lambda: seen.append(list(done)))
    machine.run(Random(0))
    assert [["copy"]] == seen


def test_nothing_to_wait_for_is_no_wait(machine):
    """A forward without loads queues no event."""
    CopyLane("sim", machine).wait_step(0)
    assert [] == machine.forward.queue
