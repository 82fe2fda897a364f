"""One layer's blocks in vLLM's cache, as bytes: read and written whatever the strides, in one order of bytes.

The canonical block is [heads, tokens, content], contiguous, so that pages that one layout wrote can be read by
another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stagehold.adapters.vllm.layout import Layer
from stagehold.adapters.vllm.options import ConnectorRefused


class LayerBlocks:
    """The cache of one layer, a tensor [blocks, heads, tokens, content] of any strides.

    Where vLLM has cut its blocks into smaller ones for a kernel, the tensor has several rows to a block.
    Raises ConnectorRefused where a block is not as large as the scheduler's side expects.
    """

    def __init__(self, layer: Layer, cache: torch.Tensor, n_blocks: int) -> None:
        rows = cache.shape[0]
        if cache.ndim != 4 or rows % n_blocks:
            raise ConnectorRefused(
                f"layer {layer.name}: expected a cache of [{n_blocks} blocks, heads, tokens, content], "
                f"got shape {tuple(cache.shape)}"
            )
        # [blocks, heads, pieces, tokens of a piece, content]: heads first, as in a block that was not cut.
        self._view = torch.unflatten(cache, 0, (n_blocks, rows // n_blocks)).transpose(1, 2)
        self._shape = self._view.shape[1:]
        self._at = slice(layer.offset, layer.offset + layer.size)
        size = self._shape.numel() * cache.element_size()
        if size != layer.size:
            raise ConnectorRefused(f"layer {layer.name}: a block has {size} bytes, expected {layer.size}")

    def save(self, blocks: Sequence[int], pool: torch.Tensor, slots: Sequence[int]) -> None:
        """Copy blocks into slots of `pool`, uint8 [1, slots, page bytes]."""
        found = self._view[_indices(blocks)].contiguous()
        pool[0, _indices(slots), self._at] = found.view(torch.uint8).view(len(blocks), -1)

    def load(self, pool: torch.Tensor, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy slots of `pool` into blocks."""
        found = pool[0, _indices(slots), self._at].contiguous()
        self._view[_indices(blocks)] = found.view(self._view.dtype).view(len(slots), *self._shape)


def _indices(numbers: Sequence[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.long)
