"""Wrong pages, planted on purpose: each moves the logits far, or fails the comparison of bytes where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stagehold.cache.components.swa import SWA
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.random_models import WINDOW, random_model
from stagehold.serving.model.smollm import find_smollm, load_smollm
from stagehold.serving.runner import Runner, Work

PAGE = 16
HIT = 256
SEEN = 0.1
"""Logits that differ by more are another computation; rounding is 3e-5 for the real weights."""

Fault = Callable[[torch.Tensor, list[int]], None]


def duplicated(pool: torch.Tensor, slots: list[int]) -> None:
    """A page stands where its neighbour should."""
    pool[:, slots[5]] = pool[:, slots[6]]


def swapped_layers(pool: torch.Tensor, slots: list[int]) -> None:
    """K and V of the first two layers change places."""
    pages = pool[:, slots].clone()
    for ours, theirs in ((0, 2), (1, 3), (2, 0), (3, 1)):
        pool[ours, slots] = pages[theirs]


def zeroed(pool: torch.Tensor, slots: list[int]) -> None:
    """The first page was never filled."""
    pool[:, slots[0]] = 0


def rotated(pool: torch.Tensor, slots: list[int]) -> None:
    """All pages, in all layers, move on by one place."""
    pool[:, slots] = pool[:, slots[1:] + slots[:1]].clone()


class Saboteur:
    """Changes the pages that a request takes over, before its first forward reads them."""

    def __init__(self, inner: Runner, pool: torch.Tensor, fault: Fault) -> None:
        self._inner, self._pool, self._fault = inner, pool, fault

    def forward(self, batch: Sequence[Work]) -> list[int]:
        for work in batch:
            if work.unread == 0 and work.reused:
                self._fault(self._pool, [int(slot) for slot in work.slots[: work.reused // PAGE]])
        return self._inner.forward(batch)

    def read(self, work: Work) -> None:
        self._inner.read(work)


@pytest.fixture(name="smollm", scope="module")
def _smollm() -> Any:
    path = find_smollm()
    assert path is not None
    return load_smollm(path)


def prompt(name: str, smollm: Any) -> tuple[Any, np.ndarray[Any, np.dtype[np.uint32]]]:
    if name == "random":
        return random_model("llama"), np.random.default_rng(0).integers(0, 256, HIT + 9).astype(np.uint32)
    text = Path(__file__).read_text()
    return smollm.model, smollm.chat.prompt([text])[: HIT + 9]


def moved(model: Any, tokens: Any, served: Any, folder: Path, fault: Fault | None) -> tuple[float, int]:
    """Largest difference of the first logits behind a restart to those before it; pages found wrong."""
    sizes = {"device_pages": 20, "largest_request_tokens": 300}
    digests: dict[str, list[int]] = {}
    first = served(model, folder, digests=digests, **sizes)
    first.serve({"a": tokens[:HIT], "again": tokens}, answer=1)
    first.close()
    wrap = (lambda runner, pool: Saboteur(runner, pool, fault)) if fault else None
    second = served(model, folder, digests=digests, wrap=wrap, **sizes)
    second.serve({"restarted": tokens}, answer=1)
    second.close()
    assert (0, HIT) == second.hits["restarted"]
    right = next(call.logits for call in reversed(first.calls) if call.work.rid == "again")
    assert second.calls[0].work.first == HIT
    return float((second.calls[0].logits - right).abs().max()), second.witness.counts.wrong


@pytest.mark.parametrize("name", ["random", "smollm"])
def test_what_comes_back_from_the_store_is_right(name: str, smollm: Any, served: Any, tmp_path: Path) -> None:
    """Without a fault neither of the two checks finds anything."""
    model, tokens = prompt(name, smollm)

    difference, wrong = moved(model, tokens, served, tmp_path, None)

    assert difference <= 1e-4
    assert 0 == wrong


@pytest.mark.parametrize("name", ["random", "smollm"])
@pytest.mark.parametrize("fault", [duplicated, swapped_layers, zeroed])
def test_a_wrong_page_moves_the_logits_and_fails_the_bytes(
    fault: Fault, name: str, smollm: Any, served: Any, tmp_path: Path
) -> None:
    """Far beyond rounding, in both models."""
    model, tokens = prompt(name, smollm)

    difference, wrong = moved(model, tokens, served, tmp_path, fault)

    assert difference > SEEN
    assert wrong >= 1


def test_rotated_pages_hardly_move_the_logits_and_fail_the_bytes(smollm: Any, served: Any, tmp_path: Path) -> None:
    """Full attention does not care where a page lies, since K carries its position: only the bytes tell."""
    model, tokens = prompt("smollm", smollm)

    difference, wrong = moved(model, tokens, served, tmp_path, rotated)

    assert difference <= 1e-4
    assert HIT // PAGE == wrong


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss"])
def test_a_stale_window_moves_the_logits(family: str) -> None:
    """The window's pages of an earlier boundary under the right FULL pages."""
    model, tokens = random_model(family), np.random.default_rng(0).integers(0, 256, 170).astype(np.uint32)
    pools = {name: page.pool(16) for name, page in layout_of(model.config, PAGE, model.dtype).components.items()}
    paged = TransformersModel(model, PAGE, pools)
    slots = {name: np.arange(16) for name in pools}
    paged.forward(tokens[:160], 0, slots)
    right = paged.forward(tokens[160:], 160, slots)
    again = paged.forward(tokens[160:], 160, slots)

    pages = WINDOW // PAGE + 1
    pools[SWA][:, 10 - pages : 10] = pools[SWA][:, 9 - pages : 9].clone()
    stale = paged.forward(tokens[160:], 160, slots)

    assert torch.equal(right, again)
    assert float((stale - right).abs().max()) > SEEN
