"""Tiny models with random weights, saved as vLLM loads them: one like Llama, one like Gemma 3 with windows of 128."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 512
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}


def save(name: str, folder: Path) -> None:
    """Write the model `name`, "llama" or "gemma", to `folder`; always the same weights."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    model: Any
    if name == "llama":
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=4, **SIZES))
    else:
        kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
        model = Gemma3ForCausalLM(
            Gemma3TextConfig(
                num_hidden_layers=6, layer_types=kinds, sliding_window=128, query_pre_attn_scalar=64, **SIZES
            )
        )
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _tokenizer() -> Any:
    """Each id is a word: its number."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({str(token): token for token in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="1", eos_token="2", unk_token="0", pad_token="0")
