"""Copies between a pool and its staging: each component's own, sent off in order, ended when the lanes say so."""

import torch

from stagehold.kernels.copies import DeviceBytes, StagingBytes, check_round_trip
from stagehold.kernels.transfers import Mark, Transfers


def small() -> Transfers:
    return Transfers(DeviceBytes(4, 8, 6), StagingBytes(4, 8, 5))


def test_a_load_and_a_save_move_pages_both_ways():
    """Out of one slot, into another."""
    t = small()
    t.device.tensor[:, 2] = 7
    t.save([2], [4])
    t.load([4], [5])
    assert {7} == set(t.staging.tensor[4].tolist()) == set(t.device.tensor[:, 5].flatten().tolist())
    assert 0 == int(t.device.tensor[:, [0, 1, 3, 4]].sum()) == int(t.staging.tensor[:4].sum())


def test_slots_move_in_order():
    """The second copy reads what the first has brought."""
    t = small()
    t.device.tensor[:, 0] = 3
    t.move([(0, 1), (1, 2)])
    assert [96, 96, 96, 0] == t.device.tensor[:, :4].sum(dim=(0, 2)).tolist()
    assert Mark(loads=1, saves=0) == t.mark()


def test_a_mark_covers_what_was_sent_off_before_it(machine):
    """And nothing after: a load that is sent later does not hold back an earlier save."""
    t = small()
    for lane in (t.device.loads, t.device.saves):
        lane.__init__("sim", machine)
    t.save([0], [0])
    first = t.mark()
    t.load([0], [1])
    second = t.mark()
    assert (False, False) == (t.ended(first), t.ended(second))
    _, loads, saves = machine.all
    assert machine.run_one(loads), "the point that the save waits for"
    while machine.run_one(machine.forward) or machine.run_one(saves):
        pass
    assert (True, False) == (t.ended(first), t.ended(second))
    t.settle()
    assert (True, True) == (t.ended(first), t.ended(second))


def test_memory_is_not_given_up_under_a_copy(machine):
    """Whoever lets go of the transfers waits for what is under way."""
    t = small()
    t.device.loads.__init__("sim", machine)
    t.load([0], [0])
    assert machine.all[1].queue
    del t
    assert not machine.all[1].queue


def test_copies_that_nobody_asks_about_leave_nothing_behind():
    """An engine that is told of ends by somebody else may run for ever."""
    t = small()
    for _ in range(50):
        t.load([0], [0])
        t.save([0], [0])
        t.move([(0, 1)])
    assert len(t.device.loads.in_flight()) + len(t.device.saves.in_flight()) <= 2
    assert Mark(loads=100, saves=50) == t.mark()


def test_on_the_cpu_every_copy_has_ended_at_once():
    """There is nothing to wait for, and waiting for a layer is allowed."""
    t = small()
    t.load([0, 1], [3, 4])
    assert t.ended(t.mark())
    t.device.wait_layer(0)


def test_a_component_has_pools_of_its_own():
    """Its own parts, sizes and page bytes, on the device, in staging and as a store's buffer."""
    shapes = {"full": (8, 1024, 2), "window": (4, 1024, 2), "state": (3, 999, 1)}
    kinds = {
        name: Transfers(DeviceBytes(parts, size, 4, layer_parts=layer), StagingBytes(parts, size, 3))
        for name, (parts, size, layer) in shapes.items()
    }
    assert [8192, 4096, 2997] == [t.staging.page(1).nbytes for t in kinds.values()]
    assert [8192, 4096, 2997] == [t.device.page_bytes for t in kinds.values()]
    assert [4, 2, 3] == [len(t.device.layers) for t in kinds.values()]
    for t in kinds.values():
        check_round_trip(t.device, t.staging)
    kinds["window"].staging.tensor.fill_(9)
    kinds["window"].load([0], [0])
    assert [0, 9 * 4096, 0] == [int(t.device.tensor.sum(dtype=torch.int64)) for t in kinds.values()]


def test_the_last_layer_may_have_fewer_parts():
    """Parts are never lost in a division."""
    assert [range(2), range(2, 4), range(4, 5)] == DeviceBytes(5, 8, 1).layers
