"""How pages lie in memory and what they are called, without any store."""

from __future__ import annotations

import gc

import pytest
import torch

from stagehold.adapters.sglang.pages import bytes_of, cut_by_heads


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.uint8])
def test_the_bytes_of_a_tensor_are_its_memory_and_keep_it(dtype: torch.dtype) -> None:
    """A store that hangs in a call writes into them when nobody else remembers the tensor."""
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    raw = bytes_of(tensor)
    assert ("B", 6 * tensor.element_size(), False) == (raw.format, len(raw), raw.readonly)
    raw[:] = bytes(len(raw))
    assert not tensor.float().any()
    address, size = tensor.data_ptr(), len(raw)
    del tensor
    gc.collect()
    others = [torch.ones(size, dtype=torch.uint8) for _ in range(64)]
    assert address not in {other.data_ptr() for other in others}
    assert not any(raw)


def test_a_tensor_in_pieces_has_no_bytes() -> None:
    """They would be others than it shows."""
    with pytest.raises(ValueError, match=r"expected a contiguous tensor in host memory, got \(3, 2\) on cpu"):
        bytes_of(torch.zeros(2, 3).T)


class Heads:
    head_num = 2


@pytest.mark.parametrize(
    ("name", "pool", "cut"),
    [("kv", Heads(), False), ("mamba", object(), True), ("draft", Heads(), True), ("draft_swa", Heads(), True),
     ("draft", object(), False), ("swa", Heads(), False)],
)  # fmt: skip
def test_what_differs_between_ranks_that_have_the_same_kv(name: str, pool: object, cut: bool) -> None:
    """States, and the heads of a draft; its latents do not."""
    assert cut == cut_by_heads(name, pool)
