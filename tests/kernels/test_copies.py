"""Gather and scatter move every byte to its place and no other."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from stagehold.kernels.copies import DeviceBytes, StagingBytes, check_round_trip, gather, scatter

SHAPES = [(1, 1), (8, 1024), (3, 7), (5, 333), (2, 64)]


def pools(parts, part_bytes, seed=0):
    """A device pool of 11 slots and a staging pool of 9 pages, both full of seeded bytes."""
    device, staging = DeviceBytes(parts, part_bytes, 11), StagingBytes(parts, part_bytes, 9)
    rng = np.random.default_rng(seed)
    device.array()[:] = rng.integers(0, 256, device.array().shape, dtype=np.uint8)
    staging.array()[:] = rng.integers(0, 256, staging.array().shape, dtype=np.uint8)
    return device, staging


SLOTS, PAGES = [10, 0, 3, 4, 7], [2, 8, 0, 1, 5]


@pytest.mark.parametrize(("parts", "part_bytes"), SHAPES)
def test_gather_equals_a_naive_loop(parts, part_bytes):
    """Every byte of the named pages is the slot's, every other byte is left alone."""
    device, staging = pools(parts, part_bytes)
    expected = staging.tensor.clone()
    for slot, page in zip(SLOTS, PAGES, strict=True):
        for part in range(parts):
            start = part * part_bytes
            expected[page, start : start + part_bytes] = device.tensor[part, slot]
    gather(device, SLOTS, staging, PAGES)
    assert torch.equal(staging.tensor, expected)


@pytest.mark.parametrize(("parts", "part_bytes"), SHAPES)
def test_scatter_equals_a_naive_loop(parts, part_bytes):
    """Every byte of the named slots is the page's, every other byte is left alone."""
    device, staging = pools(parts, part_bytes)
    expected = device.tensor.clone()
    for slot, page in zip(SLOTS, PAGES, strict=True):
        for part in range(parts):
            start = part * part_bytes
            expected[part, slot] = staging.tensor[page, start : start + part_bytes]
    scatter(staging, PAGES, device, SLOTS)
    assert torch.equal(device.tensor, expected)


@pytest.mark.parametrize(("parts", "part_bytes"), SHAPES)
def test_a_round_trip_gives_the_bytes_back(parts, part_bytes):
    """Out to staging, to other slots, out again: the same pages."""
    device, staging = pools(parts, part_bytes)
    before = device.tensor[:, SLOTS].clone()
    gather(device, SLOTS, staging, PAGES)
    device.tensor.zero_()
    others = [1, 2, 5, 6, 8]
    scatter(staging, PAGES, device, others)
    assert torch.equal(device.tensor[:, others], before)


def test_nothing_to_copy_copies_nothing():
    """Empty lists are allowed."""
    device, staging = pools(2, 4)
    before = device.tensor.clone(), staging.tensor.clone()
    gather(device, [], staging, [])
    scatter(staging, [], device, [])
    assert torch.equal(device.tensor, before[0])
    assert torch.equal(staging.tensor, before[1])


def test_a_staging_page_is_one_writable_buffer_of_the_tensor():
    """A store that fills the buffer has filled the page, without a copy."""
    _, staging = pools(3, 5)
    buffer = staging.page(4)
    assert (buffer.format, buffer.contiguous, buffer.nbytes) == ("B", True, 15)
    buffer[:] = bytes(range(15))
    assert staging.tensor[4].tolist() == list(range(15))


@pytest.mark.parametrize(
    ("slots", "pages", "message"),
    [
        ([1, 2], [1], "2 slots with 1 pages"),
        ([11], [0], "slot out of range: expected 0 to 10, got 11"),
        ([-1], [0], "slot out of range"),
        ([0], [9], "page out of range: expected 0 to 8, got 9"),
    ],
)
def test_indices_that_do_not_fit_are_refused(slots, pages, message):
    """A wrong index never moves a byte."""
    device, staging = pools(2, 4)
    with pytest.raises(ValueError, match=message):
        gather(device, slots, staging, pages)
    with pytest.raises(ValueError, match=message):
        scatter(staging, pages, device, slots)


def test_pools_of_different_pages_are_refused():
    """Parts and bytes of a part must be the same on both sides, even where the product is."""
    with pytest.raises(ValueError, match=r"device pages are \(2, 4\)"):
        gather(DeviceBytes(2, 4, 1), [0], StagingBytes(4, 2, 1), [0])


def test_a_pool_of_nothing_is_refused():
    """Sizes are at least one."""
    with pytest.raises(ValueError, match="n_slots is 0"):
        DeviceBytes(2, 4, 0)


def test_the_round_trip_check_passes_on_a_good_pool():
    """Both ends of both pools give back what was put in, and are left as in new pools."""
    device, staging = pools(3, 5)
    check_round_trip(device, staging)
    assert {0} == {*device.tensor[:, [0, 10]].flatten().tolist(), *staging.tensor[[0, 8]].flatten().tolist()}


def test_the_round_trip_check_finds_changed_bytes(monkeypatch):
    """A copy that swaps two bytes is found out."""
    device, staging = pools(3, 5)
    monkeypatch.setattr(device, "array", device.tensor.numpy()[:, :, ::-1].copy)
    with pytest.raises(RuntimeError, match="does not give back"):
        check_round_trip(device, staging)


def test_importing_the_wing_loads_no_torch():
    """The package itself is free of heavy imports."""
    code = "import sys, stagehold.kernels, stagehold.kernels.checksum; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
