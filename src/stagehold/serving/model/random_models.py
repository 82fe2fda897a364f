"""Small decoders with random weights, built from a configuration: for tests, and where no real weights are installed.

Owns their sizes. The weights are drawn from a seed, so that two processes hold the same model; they are drawn wide, so
that a wrong page moves the logits as far as it does in a trained model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

VOCABULARY = 259
START, END, ANSWER = 256, 257, 258
WINDOW = 40
SPREAD = 0.35

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 32_768,
    "initializer_range": SPREAD,
    "bos_token_id": START,
    "eos_token_id": END,
    "pad_token_id": END,
}
SLIDING: dict[str, Any] = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {}),
    "gemma3": ("Gemma3", {**SLIDING, "query_pre_attn_scalar": 12}),
    "gpt_oss": ("GptOss", {**SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2}),
}
"""By name: the library's stem of the classes, and what its configuration has beside the sizes."""


def random_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A decoder of one of `FAMILIES` in float32 on the CPU; `changes` go to its configuration."""
    import transformers

    stem, more = FAMILIES[family]
    name = f"{stem}TextConfig" if family == "gemma3" else f"{stem}Config"
    config = getattr(transformers, name)(**{**SIZES, **more, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{stem}ForCausalLM")(config)
    return model.float().eval().requires_grad_(False)


class ByteChat:
    """Turns of a chat as their bytes, for models that know no words."""

    def prompt(self, turns: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Each turn between two marks, and the place where the answer begins: uint32 [tokens]."""
        ids: list[int] = []
        for turn in turns:
            ids += [START, *turn.encode(), END]
        return np.array([*ids, ANSWER], dtype=np.uint32)

    def text(self, ids: Sequence[int]) -> str:
        """The bytes among the ids, as far as they are text."""
        return bytes(int(one) for one in ids if one < START).decode(errors="replace")
