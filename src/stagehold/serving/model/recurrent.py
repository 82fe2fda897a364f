"""A small model whose layers keep a state beside KV: gated decay and attention in turns, with random weights.

It stands for hybrids in tests. Its states lie in the STATE component's pool as checkpoints do: the slot of a page holds
the state behind the last token computed in that page, so that a whole page's slot is the checkpoint at its end, and
that of the page being computed is the request's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE
from stagehold.serving.model.layouts import PageLayout
from stagehold.serving.model.paging import Pages, UnreadablePage
from stagehold.serving.pattern import Slots, Tokens

VOCABULARY = 259
WIDTH = 32
HEADS = 2
BLOCKS = 3


class RecurrentModel:
    """`BLOCKS` times a gated-decay layer and an attention layer. A `PagedModel` of the components FULL and STATE."""

    def __init__(self, page_size: int, pools: Mapping[str, torch.Tensor], seed: int = 0) -> None:
        self._components = recurrent_layout(page_size)
        self._page_size = page_size
        self._kv = self._components[FULL].numbers(pools[FULL])
        self._states = self._components[STATE].numbers(pools[STATE])[:, :, 0]
        draw = torch.Generator().manual_seed(seed)

        def weight(rows: int) -> torch.Tensor:
            drawn: torch.Tensor = torch.randn((rows, WIDTH), generator=draw) / WIDTH**0.5
            return drawn

        self._embed = nn.Embedding(VOCABULARY, WIDTH, _weight=torch.randn((VOCABULARY, WIDTH), generator=draw))
        self._decay = [(weight(WIDTH), weight(WIDTH), weight(WIDTH)) for _ in range(BLOCKS)]
        self._attention = [(weight(3 * WIDTH), weight(WIDTH)) for _ in range(BLOCKS)]
        self._head = weight(VOCABULARY) * 4

    @property
    def components(self) -> Mapping[str, PageLayout]:
        """See `PagedModel.components`."""
        return self._components

    @torch.inference_mode()
    def forward(self, tokens: Tokens, first: int, slots: Mapping[str, Slots]) -> torch.Tensor:
        """See `PagedModel.forward`. Raises UnreadablePage where the state before `first`, or its place, is missing."""
        last = first + len(tokens)
        pages = Pages(self._components[FULL], self._kv, slots[FULL], (first, last))
        states = self._state_before(first, slots[STATE])
        kept = self._kept(first, last, slots[STATE])
        x = self._embed(torch.from_numpy(tokens.astype("int64")))
        for block in range(BLOCKS):
            x = x + self._decayed(block, rms_norm(x, (WIDTH,)), states[block], (first, kept))
            x = x + self._attended(block, rms_norm(x, (WIDTH,)), pages)
        return linear(rms_norm(x[-1], (WIDTH,)), self._head)

    def _state_before(self, first: int, slots: Slots) -> torch.Tensor:
        """A copy: a checkpoint is never computed in."""
        if not first:
            return torch.zeros((BLOCKS, WIDTH))
        page = (first - 1) // self._page_size
        if slots[page] < 0:
            raise UnreadablePage(f"{STATE}: page {page} has no slot; the state before token {first} is read")
        return self._states[:, int(slots[page])].clone()

    def _kept(self, first: int, last: int, slots: Slots) -> dict[int, int]:
        """Slot by the position whose state it keeps: every page end with a slot, and the last token."""
        size = self._page_size
        at = {min((page + 1) * size, last) - 1: int(slots[page]) for page in range(first // size, -(-last // size))}
        if at[last - 1] < 0:
            raise UnreadablePage(f"{STATE}: page {(last - 1) // size} has no slot; the state at {last} has no place")
        return {position: slot for position, slot in at.items() if slot >= 0}

    def _decayed(
        self, block: int, x: torch.Tensor, state: torch.Tensor, kept: tuple[int, dict[int, int]]
    ) -> torch.Tensor:
        """A token at a time: state = gate x state + (1 - gate) x input."""
        gate_rows, in_rows, out_rows = self._decay[block]
        gates, inputs = torch.sigmoid(linear(x, gate_rows)), linear(x, in_rows)
        first, slots = kept
        states = []
        for row in range(len(x)):
            state = gates[row] * state + (1 - gates[row]) * inputs[row]
            states.append(state)
            if first + row in slots:
                self._states[block, slots[first + row]] = state
        return linear(torch.stack(states), out_rows)

    def _attended(self, block: int, x: torch.Tensor, pages: Pages) -> torch.Tensor:
        rows = linear(x, self._attention[block][0]).view(len(x), 3, HEADS, WIDTH // HEADS)
        q, k, v = rows.unbind(1)
        joined = [self._joined(2 * block + i, new, pages) for i, new in enumerate((k, v))]
        mask = torch.ones((len(x), len(joined[0])), dtype=torch.bool).tril(pages.n_read)
        found = scaled_dot_product_attention(
            q.transpose(0, 1), joined[0].transpose(0, 1), joined[1].transpose(0, 1), attn_mask=mask
        )
        return linear(found.transpose(0, 1).reshape(len(x), WIDTH), self._attention[block][1])

    @staticmethod
    def _joined(part: int, rows: torch.Tensor, pages: Pages) -> torch.Tensor:
        pages.write(part, rows)
        joined = rows.new_empty((pages.n_read + len(rows), *rows.shape[1:]))
        pages.read_into(part, joined[: pages.n_read])
        joined[pages.n_read :] = rows
        return joined


def recurrent_layout(page_size: int) -> dict[str, PageLayout]:
    """The pages of the model: KV of a page in FULL, one state for each layer in STATE."""
    return {
        FULL: PageLayout(FULL, 2 * BLOCKS, page_size, (HEADS, WIDTH // HEADS), torch.float32),
        STATE: PageLayout(STATE, BLOCKS, 1, (WIDTH,), torch.float32),
    }
