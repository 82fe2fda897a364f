"""Which component each layer of a model keeps its KV in, and how a page of that component lies in its pool.

Derived from the configuration of a model of the transformers library. Owns shapes and refusals, no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stagehold.cache.components.full import FULL
from stagehold.cache.components.swa import SWA

KINDS = {"full_attention": FULL, "sliding_attention": SWA}
"""The library's kinds of layers that can be paged, and their components."""


WaitLayer = Callable[[str, int], None]
"""Told (component, layer of it) before a forward touches that layer's pages: copies to them may still be under way."""


class NotPaged(ValueError):
    """A model with a layer whose KV no component here can hold."""


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A component's page: `parts` rows, each `token_shape` numbers of `dtype` for each of `page_size` tokens.

    A component without tokens (a state) has one entry for the page: `page_size` is then 1.
    """

    component: str
    parts: int
    page_size: int
    token_shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def page_part_bytes(self) -> int:
        """Bytes of one page in one part."""
        numbers = self.page_size
        for side in self.token_shape:
            numbers *= side
        return numbers * self.dtype.itemsize

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts."""
        return self.parts * self.page_part_bytes

    def pool(self, n_slots: int, device: str | torch.device = "cpu") -> torch.Tensor:
        """A zeroed pool of this layout, uint8 [parts, n_slots, page_part_bytes]."""
        return torch.zeros((self.parts, n_slots, self.page_part_bytes), dtype=torch.uint8, device=device)

    def numbers(self, pool: torch.Tensor) -> torch.Tensor:
        """A view of a pool's bytes as numbers: [parts, slots, page_size, *token_shape]. Refuses another layout's."""
        if pool.dtype != torch.uint8 or pool.ndim != 3 or pool.shape[::2] != (self.parts, self.page_part_bytes):
            wanted = f"uint8 [{self.parts}, slots, {self.page_part_bytes}]"
            raise ValueError(f"pool of {self.component}: expected {wanted}, got {pool.dtype} {list(pool.shape)}")
        return pool.view(self.dtype).view(self.parts, pool.shape[1], self.page_size, *self.token_shape)


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """Where one layer's KV lies: parts 2 x `index` (K) and 2 x `index` + 1 (V) of its component's pool.

    A token sees itself and `window` - 1 tokens before it; a window of 0 has no end.
    """

    component: str
    index: int
    window: int


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """Every layer's place, and every component's page, by name."""

    layers: tuple[LayerPlace, ...]
    components: Mapping[str, PageLayout]

    @property
    def window(self) -> int:
        """Tokens of the widest sliding window; 0 where no layer slides."""
        return max(place.window for place in self.layers)


def layout_of(config: Any, page_size: int, dtype: torch.dtype) -> ModelLayout:
    """Read the places of a decoder's layers from its configuration. Raises NotPaged where one cannot be paged."""
    from transformers.cache_utils import get_layer_types_and_kwargs

    decoder = config.get_text_config(decoder=True)
    kinds, options = get_layer_types_and_kwargs(decoder)
    places: list[LayerPlace] = []
    shapes: dict[str, set[tuple[int, int]]] = {}
    for number, (kind, option, layer) in enumerate(zip(kinds, options, decoder.per_layer_config, strict=True)):
        component = KINDS.get(kind)
        if component is None:
            known = ", ".join(KINDS)
            raise NotPaged(f"layer {number} of {decoder.model_type} is {kind!r}: expected one of {known}")
        index = sum(place.component == component for place in places)
        places.append(LayerPlace(component, index, int(option.get("sliding_window", 0))))
        shapes.setdefault(component, set()).add(_token_shape(layer))
    components = {}
    for component, found in shapes.items():
        if len(found) > 1:
            raise NotPaged(f"layers of {component} differ in (heads, size): {sorted(found)}; expected one shape")
        layers = sum(place.component == component for place in places)
        components[component] = PageLayout(component, 2 * layers, page_size, found.pop(), dtype)
    return ModelLayout(tuple(places), components)


def _token_shape(layer: Any) -> tuple[int, int]:
    """(KV heads, numbers in a head) of one layer."""
    heads = int(layer.num_attention_heads)
    kv_heads = getattr(layer, "num_key_value_heads", None) or heads
    return int(kv_heads), int(getattr(layer, "head_dim", None) or layer.hidden_size // heads)
