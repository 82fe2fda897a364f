"""A device is used once it has proved itself, and its failure is said once."""

import pytest
import torch

from stagehold.kernels.device import usable_device


def test_the_cpu_is_always_there(forgotten):
    """And is what "auto" gives where nobody speaks of CUDA."""
    assert "cpu" == usable_device("cpu")
    if not torch.cuda.is_available():
        assert "cpu" == usable_device()


@pytest.fixture
def boasting(forgotten, monkeypatch):
    """CUDA says that it is there, and fails at its first use, as a build that does not match its driver."""
    if torch.cuda.is_available():
        pytest.fail("this test is for machines without CUDA")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_a_cuda_that_fails_at_its_first_use_is_not_used(boasting, caplog):
    """Pools lie on the CPU, and one line says why, however often it is asked."""
    assert ["cpu"] * 3 == [usable_device() for _ in range(3)]
    (record,) = caplog.records
    assert record.getMessage().startswith("cuda is not used: ")


def test_a_device_that_was_named_is_not_exchanged(boasting):
    """Whoever names CUDA has a model there."""
    with pytest.raises(RuntimeError, match="device 'cuda:1' does not work: "):
        usable_device("cuda:1")


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", ""])
def test_a_name_of_no_device_is_refused(name):
    """Before anything is tried."""
    with pytest.raises(ValueError, match="expected 'auto', 'cpu', 'cuda' or 'cuda:' and a number"):
        usable_device(name)
