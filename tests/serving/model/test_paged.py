"""A chunked prefill from paged pools gives the bits that the library's own cache gives for the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache

from stagehold.cache.components.full import FULL
from stagehold.cache.components.swa import SWA
from stagehold.serving.model.layouts import NotPaged, layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.paging import UnreadablePage
from stagehold.serving.model.random_models import FAMILIES, WINDOW, random_model

PAGE = 8
CALLS = (0, 37, 64, 101, 102, 103, 150)  # chunk edges: in and on pages, below and beyond the window, single tokens


def prompt(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(seed).integers(0, 256, n).astype(np.uint32)


def plain(model: Any, tokens: Any, edges: tuple[int, ...]) -> list[torch.Tensor]:
    """The library's own cache, call for call."""
    cache, found = DynamicCache(config=model.config), []
    for first, last in pairwise(edges):
        ids = torch.from_numpy(tokens[first:last].astype(np.int64))[None]
        with torch.inference_mode():
            found.append(model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1])
    return found


class Paged:
    """A model on pools of its own, whose slots are handed out in no order."""

    def __init__(self, model: Any, n_pages: int = 40) -> None:
        layout = layout_of(model.config, PAGE, model.dtype)
        self.pools = {name: page.pool(n_pages) for name, page in layout.components.items()}
        for pool in self.pools.values():
            pool.fill_(0x7F)  # what must not be read is large
        self.model = TransformersModel(model, PAGE, self.pools)
        self.slots = {name: np.random.default_rng(7).permutation(n_pages).astype(np.int64) for name in self.pools}

    def run(self, tokens: Any, edges: tuple[int, ...]) -> list[torch.Tensor]:
        return [self.model.forward(tokens[a:b], a, self.slots) for a, b in pairwise(edges)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_calls_give_the_same_bits(family: str) -> None:
    """Chunks and single tokens, from pages that lie in no order."""
    model, tokens = random_model(family), prompt(150)

    expected = plain(model, tokens, CALLS)

    assert all(torch.equal(a, b) for a, b in zip(expected, Paged(model).run(tokens, CALLS), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cut", range(PAGE, 150, PAGE))
def test_a_prefix_taken_over_at_any_page_gives_the_same_bits(family: str, cut: int) -> None:
    """Bytes copied page by page to other slots, the window alone where a layer slides, and the last call made there."""
    model, tokens = random_model(family), prompt(150)
    edges = (0, 64, cut, 150) if cut > 64 else (0, cut, 150)
    expected = plain(model, tokens, edges)[-1]
    source, target = Paged(model), Paged(model)
    source.run(tokens, edges[:-1])
    target.slots = {name: slots[::-1].copy() for name, slots in target.slots.items()}
    for name, pool in source.pools.items():
        first = max(0, cut - WINDOW + 1) // PAGE if name == SWA else 0
        target.slots[name][:first] = -1
        for page in range(first, cut // PAGE):
            target.pools[name][:, target.slots[name][page]] = pool[:, source.slots[name][page]]

    assert torch.equal(expected, target.run(tokens, (cut, 150))[0])


def test_layouts_follow_the_configuration() -> None:
    """Parts and bytes of a page come from layers, heads and sizes; hybrids have two components."""
    llama = layout_of(random_model("llama").config, 16, torch.float32)
    gemma = layout_of(random_model("gemma3", num_hidden_layers=4).config, 16, torch.bfloat16)

    assert [FULL] == list(llama.components)
    assert (8, 16 * 2 * 12 * 4) == (llama.components[FULL].parts, llama.components[FULL].page_part_bytes)
    assert 0 == llama.window
    assert {FULL: 4, SWA: 4} == {name: page.parts for name, page in gemma.components.items()}
    assert 16 * 2 * 12 * 2 == gemma.components[SWA].page_part_bytes
    assert WINDOW == gemma.window


def test_a_layer_that_cannot_be_paged_is_refused() -> None:
    """A linear-attention layer is named, with what could be."""
    config = random_model("llama").config
    config.layer_types = ["full_attention", "linear_attention", "full_attention", "full_attention"]

    with pytest.raises(NotPaged, match=r"layer 1 of llama is 'linear_attention': expected one of full_attention"):
        layout_of(config, PAGE, torch.float32)


def test_a_pool_of_another_shape_is_refused() -> None:
    """The pool of another page size is told by its shape."""
    model = random_model("llama")
    pool = layout_of(model.config, 2 * PAGE, model.dtype).components[FULL].pool(4)

    with pytest.raises(ValueError, match=r"pool of full: expected uint8 \[8, slots, 768\]"):
        TransformersModel(model, PAGE, {FULL: pool})


def without(slots: Mapping[str, Any], name: str, page: int) -> dict[str, Any]:
    changed = {key: value.copy() for key, value in slots.items()}
    changed[name][page] = -1
    return changed


@pytest.mark.parametrize(("name", "page"), [(FULL, 0), (SWA, (100 - WINDOW + 1) // PAGE)])
def test_a_page_without_a_slot_is_never_read(name: str, page: int) -> None:
    """Full layers need every page, sliding ones those of the window: the page is named."""
    paged, tokens = Paged(random_model("gemma3")), prompt(150)
    paged.run(tokens, (0, 100))

    with pytest.raises(UnreadablePage, match=rf"{name}: page {page} has no slot; reading tokens .* to 100"):
        paged.model.forward(tokens[100:110], 100, without(paged.slots, name, page))


def test_pages_behind_the_window_need_no_slot() -> None:
    """The page before the window's first is not looked at."""
    paged, tokens = Paged(random_model("gemma3")), prompt(150)
    paged.run(tokens, (0, 100))
    expected = paged.model.forward(tokens[100:110], 100, paged.slots)

    slots = without(paged.slots, SWA, (100 - WINDOW + 1) // PAGE - 1)

    assert torch.equal(expected, paged.model.forward(tokens[100:110], 100, slots))


def test_tokens_that_the_next_call_sees_must_have_slots() -> None:
    """In a long chunk the early pages of a sliding layer may be missing, the late ones may not."""
    paged, tokens = Paged(random_model("gemma3")), prompt(150)
    early, late = without(paged.slots, SWA, 0), without(paged.slots, SWA, (100 - WINDOW + 1) // PAGE)

    whole = paged.model.forward(tokens[:100], 0, paged.slots)

    assert torch.equal(whole, paged.model.forward(tokens[:100], 0, early))
    with pytest.raises(UnreadablePage, match="swa: token 63 has no slot, and is read after 100"):
        paged.model.forward(tokens[:100], 0, late)


def test_each_layer_is_waited_for_before_its_pages_are_touched() -> None:
    """In the order of the model's layers, by component and the layer's number in it."""
    told: list[tuple[str, int]] = []
    paged = Paged(random_model("gemma3"))
    model = TransformersModel(random_model("gemma3"), PAGE, paged.pools, lambda *layer: told.append(layer))

    model.forward(prompt(20), 0, paged.slots)

    assert [(SWA, 0), (FULL, 0), (SWA, 1), (FULL, 1)] == told


def test_too_few_slots_are_refused() -> None:
    """The number of pages is said."""
    paged = Paged(random_model("llama"))

    with pytest.raises(UnreadablePage, match="full: 3 pages hold 17 tokens, but 2 slots were given"):
        paged.model.forward(prompt(17), 0, {FULL: paged.slots[FULL][:2]})
