"""Cache layers of the transformers library whose storage is a paged pool; one set of them lives for one forward.

New K and V are written to their slots as they are produced, and returned in one contiguous piece behind the past ones,
as the library's own layers do: same numbers, same strides, hence same kernels. Bound to the library's 5.24 interface.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from stagehold.serving.model.layouts import LayerPlace, WaitLayer
from stagehold.serving.model.paging import Pages


class PagedLayer(CacheLayerMixin):  # type: ignore[misc]  # the library is not typed here
    """One layer's share of its component's pages. What it reports is the past as its mask must see it."""

    def __init__(self, place: LayerPlace, pages: Pages, wait: WaitLayer) -> None:
        super().__init__()
        self._wait = wait
        self.is_sliding = bool(place.window)
        self.is_initialized = True
        self._place = place
        self._pages = pages
        self._length = pages.first

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store K and V of the new tokens, [1, heads, tokens, size]; return those of past and new ones alike."""
        self._wait(self._place.component, self._place.index)
        part = 2 * self._place.index
        self._length += key_states.shape[-2]
        return self._joined(part, key_states), self._joined(part + 1, value_states)

    def _joined(self, part: int, new: torch.Tensor) -> torch.Tensor:
        pages = self._pages
        self._pages.write(part, new[0].transpose(0, 1))
        joined = new.new_empty((1, new.shape[1], pages.n_read + new.shape[2], new.shape[3]))
        pages.read_into(part, joined[0, :, : pages.n_read].transpose(0, 1))
        joined[:, :, pages.n_read :] = new
        return joined

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is left to be made."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(tokens that the mask covers, position of the first of them)."""
        return self._pages.n_read + query_length, self._pages.low

    def get_seq_length(self) -> int:
        """Tokens so far, those that no window sees any more included."""
        return self._length

    def get_max_length(self) -> int:
        """The window; -1 where there is none."""
        return self._place.window or -1


def paged_cache(places: tuple[LayerPlace, ...], pages: dict[LayerPlace, Pages], wait: WaitLayer) -> Cache:
    """The cache of one forward, a layer for each place; `wait` is called before a layer's pages are touched."""
    return Cache(layers=[PagedLayer(place, pages[place], wait) for place in places])
