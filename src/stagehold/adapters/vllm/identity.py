"""What a page of vLLM's depends on beside its tokens: the model and its layout, the adapter, the salt, the images.

All of it goes into the namespace, which is part of every key. What a request brings is told for the whole request, so
that two requests share pages only where all of it is equal.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from stagehold import Namespace
from stagehold.adapters.vllm.layout import Layout


def fingerprint(vllm_config: Any, layout: Layout) -> str:
    """The model: its name, revision, number formats, the digest of its configuration, and how a page is laid out.

    Weights are told apart by name and revision alone.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    inside = json.dumps(model.hf_config.to_dict(), sort_keys=True, default=str)
    return json.dumps(
        [
            "vllm",
            str(model.model),
            str(model.revision),
            str(model.dtype),
            str(cache.cache_dtype),
            str(model.quantization),
            sha256(inside.encode()).hexdigest(),
            sha256(layout.described().encode()).hexdigest(),
        ]
    )


def namespace_of(request: Any, model: str) -> Namespace | None:
    """Whose pages these are; None for a request whose tokens do not say what was computed, which is not served."""
    if request.prompt_embeds is not None or request.prompt_token_ids is None or request.resumable:
        return None
    lora = request.lora_request
    adapter = None if lora is None else [lora.lora_name, lora.lora_path]
    shown = [[one.identifier, one.mm_position.offset, one.mm_position.length] for one in request.mm_features]
    extra = json.dumps([adapter, shown]) if adapter or shown else ""
    return Namespace(model, extra, request.cache_salt or "")
