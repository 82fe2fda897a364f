"""Which device the pools can lie on: a CUDA device is believed only once bytes have been there and back."""

from __future__ import annotations

import logging
from functools import cache

import torch

from stagehold.kernels.lanes import CopyLane

LOG = logging.getLogger("stagehold")


def usable_device(wanted: str = "auto") -> str:
    """`wanted` if pools can lie there: "cpu", "cuda" or "cuda:1". "auto" is CUDA where it works, and else the CPU.

    A CUDA build that says it is there and fails at its first use is said once. Raises RuntimeError where a device
    that was named does not work, ValueError for a name that is none of these.
    """
    if wanted == "cpu":
        return wanted
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
    sent, back = (torch.zeros(251, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    sent.copy_(torch.arange(251))
    there = torch.zeros(251, dtype=torch.uint8, device=device)
    lane = CopyLane(device)
    lane.submit(lambda: there.copy_(sent, non_blocking=True))
    lane.submit(lambda: back.copy_(there, non_blocking=True))
    lane.drain()
    if not torch.equal(sent, back):
        raise RuntimeError("bytes came back changed")
