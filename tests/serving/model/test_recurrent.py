"""A model with states: checkpoints at page ends, written as they pass and gone on from in other slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE
from stagehold.serving.model.paging import UnreadablePage
from stagehold.serving.model.recurrent import RecurrentModel, recurrent_layout

PAGE = 8
LENGTH = 90


class Bench:
    def __init__(self, n_pages: int = 24) -> None:
        self.pools = {name: page.pool(n_pages) for name, page in recurrent_layout(PAGE).items()}
        self.model = RecurrentModel(PAGE, self.pools)
        self.slots = {name: np.random.default_rng(5).permutation(n_pages).astype(np.int64) for name in self.pools}

    def run(self, first: int, last: int) -> torch.Tensor:
        return self.model.forward(prompt()[first:last], first, self.slots)


def prompt() -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(0).integers(0, 256, LENGTH).astype(np.uint32)


@pytest.mark.parametrize("cut", range(PAGE, LENGTH, PAGE))
def test_going_on_from_a_checkpoint_gives_the_same_bits(cut: int) -> None:
    """Only the checkpoint at the cut and the KV before it are carried over, to other slots."""
    whole, target = Bench(), Bench()
    whole.run(0, cut)
    target.slots = {name: slots[::-1].copy() for name, slots in target.slots.items()}
    target.slots[STATE][: cut // PAGE - 1] = -1
    for name in whole.pools:
        for page in range(cut // PAGE):
            if target.slots[name][page] >= 0:
                target.pools[name][:, target.slots[name][page]] = whole.pools[name][:, whole.slots[name][page]]

    assert torch.equal(whole.run(cut, LENGTH), target.run(cut, LENGTH))


def test_every_page_end_that_has_a_slot_keeps_its_state() -> None:
    """One long call leaves the checkpoints that short ones leave; pages without a slot keep none."""
    long, short = Bench(), Bench()
    long.slots[STATE][3] = -1
    long.run(0, 48)
    for end in range(PAGE, 49, PAGE):
        short.run(end - PAGE, end)

    for page in (0, 1, 2, 4, 5):
        ours, theirs = (b.pools[STATE][:, b.slots[STATE][page]].view(torch.float32) for b in (long, short))
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert 5 == int((long.pools[STATE] != 0).any(dim=2).any(dim=0).sum())


def test_single_tokens_move_the_state_along_in_the_page_s_slot() -> None:
    """Decode steps leave the same state as one call, within rounding, and leave the checkpoint before them alone."""
    chunk, steps = Bench(), Bench()
    expected = chunk.run(0, 21)
    steps.run(0, 16)
    before = steps.pools[STATE][:, steps.slots[STATE][1]].clone()
    for at in range(16, 21):
        found = steps.run(at, at + 1)

    assert torch.allclose(expected, found, atol=1e-4)
    assert torch.equal(before, steps.pools[STATE][:, steps.slots[STATE][1]])


def test_another_checkpoint_moves_the_logits() -> None:
    """The state of another page is no small error."""
    bench = Bench()
    bench.run(0, 48)
    right = bench.run(48, 60)
    bench.slots[STATE][5] = bench.slots[STATE][4]

    assert float((bench.run(48, 60) - right).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("page", "message"),
    [(5, "state: page 5 has no slot; the state before token 48"), (7, "page 7 has no slot; the state at 60")],
)
def test_a_missing_state_is_told(page: int, message: str) -> None:
    """There is no going on without a checkpoint, and none without a place to compute in."""
    bench = Bench()
    bench.run(0, 48)
    bench.slots[STATE][page] = -1

    with pytest.raises(UnreadablePage, match=message):
        bench.run(48, 60)


def test_the_state_component_has_one_entry_a_page() -> None:
    """A checkpoint's bytes do not grow with the page."""
    small, large = recurrent_layout(8), recurrent_layout(64)

    assert small[STATE].page_bytes == large[STATE].page_bytes
    assert 8 * small[FULL].page_bytes == large[FULL].page_bytes
