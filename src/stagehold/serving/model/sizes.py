"""What an engine is told of a model's layout, and the pools that it then holds for the model.

It owns the translation between the two; sizes of pools are the caller's.
"""

from __future__ import annotations

from typing import Any

import torch

from stagehold import ComponentConfig, ComponentKind, Engine
from stagehold.cache.components.full import SPINE
from stagehold.cache.components.state import STATE
from stagehold.serving.model.layouts import ModelLayout, PageLayout, WaitLayer


def engine_options(
    pages: dict[str, PageLayout], *, window_tokens: int, device_pages: int, staging_pages: int
) -> dict[str, Any]:
    """Options of an `EngineConfig` for these pages; every component gets the same number of pages of its own size."""
    spine = pages[SPINE]
    others = tuple(
        ComponentConfig(
            name=name,
            kind=ComponentKind.CHECKPOINT if name == STATE else ComponentKind.SLIDING_WINDOW,
            device_pages=device_pages,
            staging_pages=staging_pages,
            window_tokens=None if name == STATE else window_tokens,
            parts=page.parts,
            page_part_bytes=page.page_part_bytes,
        )
        for name, page in pages.items()
        if name != SPINE
    )
    return {
        "page_size": spine.page_size,
        "device_pages": device_pages,
        "staging_pages": staging_pages,
        "parts": spine.parts,
        "page_part_bytes": spine.page_part_bytes,
        "components": others,
    }


def options_of(layout: ModelLayout, *, device_pages: int, staging_pages: int) -> dict[str, Any]:
    """`engine_options` of a transformers model."""
    return engine_options(
        dict(layout.components), window_tokens=layout.window, device_pages=device_pages, staging_pages=staging_pages
    )


def waits_of(engine: Engine) -> WaitLayer:
    """Lets the current stream wait for the copies to a layer; on a CPU nothing is waited for."""
    tensors = {SPINE: engine.device_bytes} | {
        part.name: engine.component_bytes(part.name) for part in engine.config.components
    }

    def wait(component: str, layer: int) -> None:
        held = tensors[component]
        if held is not None:
            held.wait_layer(layer)

    return wait


def pools_of(engine: Engine) -> dict[str, torch.Tensor]:
    """The device tensors of an engine, by component; refuses one without bytes."""
    spine = engine.device_bytes
    if spine is None:
        raise ValueError("expected an engine with parts and page_part_bytes, so that it holds bytes")
    pools = {SPINE: spine.tensor}
    for part in engine.config.components:
        tensors = engine.component_bytes(part.name)
        assert tensors is not None, "tensors are attached to every component, or to none"
        pools[part.name] = tensors.tensor
    return pools
