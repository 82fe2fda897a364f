"""Builds a Llama of the transformers library from a GGUF file: its configuration, and its weights in float32.

It owns the names of both sides and the order of the rotary rows. The model is made without storage and the weights
are assigned, so that nothing is held twice.
"""

from __future__ import annotations

from typing import Any

import torch

from stagehold.serving.model.dequantise import dequantise
from stagehold.serving.model.gguf import Gguf, GgufError

OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


SIZES = {
    "vocab_size": ("vocab_size", 1 << 20),
    "hidden_size": ("embedding_length", 1 << 16),
    "intermediate_size": ("feed_forward_length", 1 << 18),
    "num_hidden_layers": ("block_count", 1 << 10),
    "num_attention_heads": ("attention.head_count", 1 << 10),
    "num_key_value_heads": ("attention.head_count_kv", 1 << 10),
    "max_position_embeddings": ("context_length", 1 << 24),
}
"""Sizes by the library's name: the file's key, and the most that is believed."""


def load_llama(file: Gguf) -> Any:
    """A `LlamaForCausalLM` in float32 on the CPU, ready for inference. GgufError where the file is none of a Llama."""
    from transformers import LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = llama_config(file)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = llama_weights(file)
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    _refuse_other_shapes(file, weights, {name: tuple(t.shape) for name, t in model.state_dict().items()})
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)  # a buffer and no weight: the one of before has no storage
    return model.eval().requires_grad_(False)


def llama_config(file: Gguf) -> Any:
    """The library's configuration of the file's model."""
    from transformers import LlamaConfig

    architecture = file.get("general.architecture", str)
    if architecture != "llama":
        raise GgufError(file.path, 0, "general.architecture 'llama'", repr(architecture))

    sizes = {size: _size(file, f"llama.{key}", most) for size, (key, most) in SIZES.items()}
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    if sizes["num_hidden_layers"] > len(file.tensors):
        found = f"{sizes['num_hidden_layers']} of {len(file.tensors)} tensors"
        raise GgufError(file.path, 0, "no more layers than the file has tensors", found)
    if sizes["hidden_size"] % (2 * heads) or heads % kv_heads:
        wanted = "a hidden size of whole heads, each of an even size, and as many for each head of K and V"
        raise GgufError(file.path, 0, wanted, f"{sizes['hidden_size']}, {heads} and {kv_heads}")
    return LlamaConfig(
        **sizes,
        rms_norm_eps=float(file.get("llama.attention.layer_norm_rms_epsilon", float)),
        rope_parameters={"rope_type": "default", "rope_theta": float(file.get("llama.rope.freq_base", float))},
        tie_word_embeddings="output.weight" not in file.tensors,
        bos_token_id=int(file.get("tokenizer.ggml.bos_token_id", int)),
        eos_token_id=int(file.get("tokenizer.ggml.eos_token_id", int)),
    )


def _size(file: Gguf, key: str, most: int) -> int:
    """A size that the model is made with: what a file tells is not believed beyond what models have."""
    found = int(file.get(key, int))
    if not 1 <= found <= most:
        raise GgufError(file.path, 0, f"{key}, 1 to {most}", str(found))
    return found


def llama_weights(file: Gguf) -> dict[str, torch.Tensor]:
    """Every tensor of the file by the library's name, float32; rows of Q and K in the library's rotary order."""
    heads = {
        "attn_q": int(file.get("llama.attention.head_count", int)),
        "attn_k": int(file.get("llama.attention.head_count_kv", int)),
    }
    weights = {}
    for name, tensor in file.tensors.items():
        values = dequantise(file, tensor)
        part = name.split(".")[2] if name.startswith("blk.") and name.count(".") == 3 else ""
        weights[_library_name(file, name)] = _halves(values, heads[part]) if part in heads else values
    return weights


def _library_name(file: Gguf, name: str) -> str:
    if name in OUTSIDE:
        return OUTSIDE[name]
    pieces = name.split(".")
    if len(pieces) != 4 or pieces[0] != "blk" or pieces[2] not in INSIDE or pieces[3] != "weight":
        raise GgufError(file.path, file.tensors[name].start, "a tensor of a Llama", repr(name))
    return f"model.layers.{pieces[1]}.{INSIDE[pieces[2]]}.weight"


def _halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary pairs side by side, as the file has them, become pairs half a head apart, as the library has them."""
    paired = rows.view(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return paired.transpose(1, 2).reshape(rows.shape)


def _refuse_other_shapes(file: Gguf, weights: dict[str, torch.Tensor], wanted: dict[str, tuple[int, ...]]) -> None:
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            expected = f"{name} of shape {wanted[name]}" if name in wanted else f"no {name}"
            raise GgufError(file.path, 0, expected, str(found.get(name, "none")))
