"""Host memory locked for CUDA, by its exact size: what torch itself pins is rounded up to a power of two."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PORTABLE = 1
"""The flag of cudaHostRegister that locks memory for every device of the process."""


def pin(owner: object, tensor: torch.Tensor) -> None:
    """Lock the memory of `tensor`, contiguous on the CPU, as long as `owner` lives.

    Raises RuntimeError where the driver refuses, and whatever torch raises where there is no CUDA.
    """
    import torch

    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, size = tensor.data_ptr(), tensor.nbytes
    code = int(runtime.cudaHostRegister(address, size, PORTABLE))
    if code:
        raise RuntimeError(f"{size} bytes of host memory could not be locked: CUDA error {code}")
    weakref.finalize(owner, runtime.cudaHostUnregister, address)
