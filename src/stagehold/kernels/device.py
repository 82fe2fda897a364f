"""Which device the pools can lie on: a CUDA device is believed only once bytes have been there and back."""

from __future__ import annotations

import logging
from functools import cache

from stagehold.kernels.copies import DeviceBytes, StagingBytes
from stagehold.kernels.transfers import Transfers

LOG = logging.getLogger("stagehold")


def usable_device(wanted: str = "auto") -> str:
    """`wanted` if pools can lie there: "cpu", "cuda" or "cuda:1". "auto" is CUDA where it works, and else the CPU.

    A CUDA build that says it is there and fails at its first use is said once. Raises RuntimeError where a device
    that was named does not work, ValueError for a name that is none of these.
    """
    if wanted == "cpu":
        return wanted
    import torch

    if wanted == "auto" and not torch.cuda.is_available():
        return "cpu"
    if wanted not in ("auto", "cuda") and not wanted.removeprefix("cuda:").isdecimal():
        raise ValueError(f"device {wanted!r}: expected 'auto', 'cpu', 'cuda' or 'cuda:' and a number")
    device = "cuda" if wanted == "auto" else wanted
    fault = _fault(device)
    if fault is None:
        return device
    if wanted != "auto":
        raise RuntimeError(f"device {wanted!r} does not work: {fault}")
    return "cpu"


@cache
def _fault(device: str) -> str | None:
    """What went wrong at the first use of a CUDA device: pinned memory, a stream, events, both ways."""
    try:
        _there_and_back(device)
    except Exception as error:  # noqa: BLE001 - whatever a mismatched build raises, there is the CPU
        fault = f"{type(error).__name__}: {error}"
        LOG.warning("%s is not used: %s", device, fault)
        return fault
    return None


def _there_and_back(device: str) -> None:
    """By the lanes and the pinned memory that an engine would use."""
    pools = Transfers(DeviceBytes(4, 64, 3, device), StagingBytes(4, 64, 3, pinned=True))
    sent = bytes(range(256))
    pools.staging.page(0)[:] = sent
    pools.load([0], [2])
    pools.save([2], [1])
    pools.settle()
    if pools.staging.page(1) != sent:
        raise RuntimeError("bytes came back changed")
