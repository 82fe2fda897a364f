"""Staging is locked by its exact size, for as long as it is there."""

import pytest
import torch

from stagehold.kernels.copies import StagingBytes


class Runtime:
    """Stands for the CUDA runtime, and answers with `code`."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.locked: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        self.locked[address] = size
        return self.code

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.locked[address]
        return 0


@pytest.fixture
def runtime(monkeypatch):
    """A runtime that says yes."""
    found = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: found)
    return found


def test_exactly_the_pool_is_locked_and_given_back(runtime):
    """Not a power of two, and not a byte longer than it lives."""
    staging = StagingBytes(3, 1000, 5, pinned=True)
    assert {staging.tensor.data_ptr(): 15_000} == runtime.locked
    assert staging.pinned
    del staging
    assert {} == runtime.locked


def test_memory_that_cannot_be_locked_is_an_error(runtime):
    """With how much it was."""
    runtime.code = 2
    with pytest.raises(RuntimeError, match="15000 bytes of host memory could not be locked: CUDA error 2"):
        StagingBytes(3, 1000, 5, pinned=True)


def test_pools_are_not_locked_unless_asked(runtime):
    """The CPU needs none of it."""
    assert not StagingBytes(3, 1000, 5).pinned
    assert {} == runtime.locked
