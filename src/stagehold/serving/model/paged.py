"""A model of the transformers library on paged pools: one sequence a call, a chunk of a prompt or a step of an answer.

It owns the views of the pools. Which slots hold what is told with each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from stagehold.serving.model.layouts import ModelLayout, PageLayout, WaitLayer, layout_of
from stagehold.serving.model.paging import Pages
from stagehold.serving.pattern import Slots, Tokens


class PagedModel(Protocol):
    """A model whose every lasting number lies in pools that others own."""

    @property
    def components(self) -> Mapping[str, PageLayout]:
        """The page of each component, by name."""

    def forward(self, tokens: Tokens, first: int, slots: Mapping[str, Slots]) -> torch.Tensor:
        """Compute `tokens`, the first of which stands at position `first`; what is before it lies in the slots.

        Returns the logits behind the last token: float32 [vocabulary], on the host.
        """


class TransformersModel:
    """Any decoder of full and sliding attention layers. `pools` has a uint8 tensor for each component of the model.

    `wait` is told each layer before its pages are touched; where copies have ended when they are reported, as on a
    CPU, nobody need be told.
    """

    def __init__(
        self, model: Any, page_size: int, pools: Mapping[str, torch.Tensor], wait: WaitLayer = lambda *_: None
    ) -> None:
        self._wait = wait
        self.layout: ModelLayout = layout_of(model.config, page_size, model.dtype)
        self._model = model
        self._numbers = {name: page.numbers(pools[name]) for name, page in self.layout.components.items()}

    @property
    def components(self) -> Mapping[str, PageLayout]:
        """See `PagedModel.components`."""
        return self.layout.components

    @torch.inference_mode()
    def forward(self, tokens: Tokens, first: int, slots: Mapping[str, Slots]) -> torch.Tensor:
        """See `PagedModel.forward`."""
        from stagehold.serving.model.layers import paged_cache

        span = first, first + len(tokens)
        places = self.layout.layers
        kinds = dict.fromkeys((place.component, place.window) for place in places)
        pages = {kind: self._pages(kind, slots, span) for kind in kinds}
        cache = paged_cache(places, {place: pages[place.component, place.window] for place in places}, self._wait)
        ids = torch.from_numpy(tokens.astype(np.int64))[None].to(self._model.device)
        logits = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits
        found: torch.Tensor = logits[0, -1].float().cpu()
        return found

    def _pages(self, kind: tuple[str, int], slots: Mapping[str, Slots], span: tuple[int, int]) -> Pages:
        component, window = kind
        layout = self.layout.components[component]
        return Pages(layout, self._numbers[component], slots[component], span, window)
