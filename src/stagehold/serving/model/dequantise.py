"""Turns the blocks of a GGUF tensor into float32, on the host. It owns the block formats and nothing else."""

from __future__ import annotations

from typing import assert_never

import torch

from stagehold.serving.model.gguf import Gguf, Kind, Tensor

HALF = 16  # a Q4_1 byte holds an element of the block's first half, and in its upper bits one of the second


def dequantise(file: Gguf, tensor: Tensor) -> torch.Tensor:
    """Return float32 of the tensor's shape, in memory of its own."""
    raw = torch.from_numpy(file.bytes_of(tensor))
    match tensor.kind:
        case Kind.F32:
            values = raw.clone().view(torch.float32)  # a clone is aligned, whatever the file's place was
        case Kind.Q8_0:
            values = _q8_0(raw)
        case Kind.Q4_1:
            values = _q4_1(raw)
        case _:
            assert_never(tensor.kind)
    return values.reshape(tensor.shape)


def _q8_0(raw: torch.Tensor) -> torch.Tensor:
    """Blocks of a half-precision scale and 32 signed bytes: scale x byte."""
    blocks = raw.view(-1, 34)
    scales = blocks[:, :2].contiguous().view(torch.float16).to(torch.float32)
    return blocks[:, 2:].view(torch.int8).to(torch.float32).mul_(scales)


def _q4_1(raw: torch.Tensor) -> torch.Tensor:
    """Blocks of scale, minimum (half precision) and 32 nibbles: scale x nibble + minimum, rounded after each step."""
    blocks = raw.view(-1, 20)
    scale_and_minimum = blocks[:, :4].contiguous().view(torch.float16).to(torch.float32)
    values = torch.empty((len(blocks), 2 * HALF), dtype=torch.float32)
    values[:, :HALF] = blocks[:, 4:] & 15
    values[:, HALF:] = blocks[:, 4:] >> 4
    return values.mul_(scale_and_minimum[:, :1]).add_(scale_and_minimum[:, 1:])
