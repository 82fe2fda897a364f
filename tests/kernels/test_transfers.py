"""Copies between a pool and its staging: each component's own, sent off in order, ended when the lanes say so."""

import pytest
import torch

from stagehold.kernels.copies import DeviceBytes, StagingBytes, check_round_trip
from stagehold.kernels.transfers import Mark, PageShape, Transfers, attach

SHAPES = {"full": PageShape(8, 1024), "swa": PageShape(4, 1024), "state": PageShape(3, 999, layer_parts=1)}


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


def test_on_the_cpu_every_copy_has_ended_at_once():
    """There is nothing to wait for, and waiting for a layer is allowed."""
    t = small()
    t.load([0, 1], [3, 4])
    assert t.ended(t.mark())
    t.device.wait_layer(0)


def test_a_component_has_pools_of_its_own():
    """Its own parts, sizes and page bytes, on the device, in staging and as a store's buffer."""
    attached = attach(SHAPES, {"full": 6, "swa": 4, "state": 2}, {"full": 5, "swa": 3, "state": 2})
    assert list(SHAPES) == list(attached)
    assert [(8, 6, 1024), (4, 4, 1024), (3, 2, 999)] == [tuple(t.device.tensor.shape) for t in attached.values()]
    assert [8192, 4096, 2997] == [t.staging.page(1).nbytes for t in attached.values()]
    assert [8192, 4096, 2997] == [shape.page_bytes for shape in SHAPES.values()]
    assert [4, 2, 3] == [len(t.device.layers) for t in attached.values()]
    for t in attached.values():
        check_round_trip(t.device, t.staging)
    tensors = [tensor for t in attached.values() for tensor in (t.device.tensor, t.staging.tensor)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 6
    attached["swa"].staging.tensor.fill_(9)
    attached["swa"].load([0], [0])
    assert 0 == sum(int(attached[name].device.tensor.sum(dtype=torch.int64)) for name in ("full", "state"))


@pytest.mark.parametrize(
    ("slots", "pages", "message"),
    [
        ({"full": 6}, {"full": 5, "swa": 3}, "slots of component 'swa': expected at least 1, got None"),
        ({"full": 6, "swa": 1}, {"full": 5, "swa": 0}, "pages of component 'swa': expected at least 1, got 0"),
    ],
)
def test_a_component_without_a_size_is_refused(slots, pages, message):
    """By its name."""
    with pytest.raises(ValueError, match=message):
        attach({name: SHAPES[name] for name in ("full", "swa")}, slots, pages)


def test_the_last_layer_may_have_fewer_parts():
    """Parts are never lost in a division."""
    assert [range(2), range(2, 4), range(4, 5)] == DeviceBytes(5, 8, 1).layers
