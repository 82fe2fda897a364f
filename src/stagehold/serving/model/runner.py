"""A model behind the bundled scheduler: each request's share of a pass is a call of its own, greedy tokens come out.

Rows are never batched, so that the same calls give the same bits whatever else is running. It owns no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from stagehold.serving.model.paged import PagedModel
from stagehold.serving.runner import Work

Logits = torch.Tensor
"""What follows a token, as the model sees it: float32 [vocabulary], on the host."""
OnLogits = Callable[[Work, Logits], None]
"""Told each work, once it is computed, and the logits behind its last token."""


def ignore(_work: Work, _logits: Logits) -> None:
    """Nobody wants the logits."""


class ModelRunner:
    """A `Runner` of a paged model."""

    def __init__(self, model: PagedModel, on_logits: OnLogits = ignore) -> None:
        self.model = model
        self._on_logits = on_logits

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """See `Runner.forward`: the likeliest token each, the one of lowest id among equals."""
        answers = []
        for work in batch:
            slots = {name: work.pages(name) for name in self.model.components}
            logits = self.model.forward(work.tokens[work.first : work.last], work.first, slots)
            self._on_logits(work, logits)
            answers.append(int(logits.argmax()))
        return answers

    def read(self, work: Work) -> None:
        """A model looks at KV only when it computes."""
