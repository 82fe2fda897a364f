"""Reading and writing tokens of one request in the pages of one component, for one forward.

It owns the arithmetic from positions to slots. A page without a slot (-1) is never read, and written only where the
tokens in it are behind every window. It never chooses slots.
"""

from __future__ import annotations

import numpy as np
import torch

from stagehold.serving.model.layouts import PageLayout
from stagehold.serving.pattern import Slots

NOWHERE = -1


class UnreadablePage(RuntimeError):
    """A forward would need a page that has no slot: component, page, and the positions that were asked for."""


class Pages:
    """The pages of one request in one pool, around the tokens [first, last) that a forward computes.

    Tokens from `first` - `window` + 1 on are read (a window of 0: all before `first`).
    """

    def __init__(
        self, layout: PageLayout, numbers: torch.Tensor, slots: Slots, span: tuple[int, int], window: int = 0
    ) -> None:
        self.first, last = span
        size, component = layout.page_size, layout.component
        self.low = max(0, self.first - window + 1) if window else 0
        self._numbers = numbers
        slots = _long_enough(component, slots, -(-last // size), last)
        read = slots[self.low // size : -(-self.first // size)] if self.low < self.first else slots[:0]
        if (read < 0).any():
            page = self.low // size + int(np.flatnonzero(read < 0)[0])
            raise UnreadablePage(f"{component}: page {page} has no slot; reading tokens {self.low} to {self.first}")
        self._read = torch.from_numpy(read.astype(np.int64)).to(numbers.device)
        self._skip = self.low - self.low // size * size
        positions = np.arange(self.first, last)
        targets = slots[positions // size]
        kept = targets != NOWHERE
        self._refuse_lost(component, positions[~kept], last, window)
        self._kept = None if kept.all() else torch.from_numpy(np.flatnonzero(kept)).to(numbers.device)
        self._targets = torch.from_numpy(targets[kept].astype(np.int64)).to(numbers.device)
        self._offsets = torch.from_numpy(positions[kept] % size).to(numbers.device)

    @staticmethod
    def _refuse_lost(component: str, lost: np.ndarray[tuple[int, ...], np.dtype[np.int64]], last: int, window: int
                     ) -> None:  # fmt: skip
        """Tokens may go unwritten only if the next forward, at `last`, cannot see them."""
        if len(lost) and (not window or int(lost[-1]) >= last - window + 1):
            raise UnreadablePage(f"{component}: token {int(lost[-1])} has no slot, and is read after {last}")

    @property
    def n_read(self) -> int:
        """How many tokens before `first` are read."""
        return self.first - self.low

    def write(self, part: int, rows: torch.Tensor) -> None:
        """Put the new tokens' numbers, [last - first, *token_shape], into their slots."""
        kept = rows if self._kept is None else rows.index_select(0, self._kept)
        self._numbers[part].index_put_((self._targets, self._offsets), kept)

    def read_into(self, part: int, target: torch.Tensor) -> None:
        """Copy the tokens [low, first) to `target`, [n_read, *token_shape], of any strides."""
        if self.n_read:
            rows = self._numbers[part].index_select(0, self._read).flatten(0, 1)
            target.copy_(rows[self._skip : self._skip + self.n_read])


def _long_enough(component: str, slots: Slots, pages: int, last: int) -> Slots:
    if len(slots) < pages:
        raise UnreadablePage(f"{component}: {pages} pages hold {last} tokens, but {len(slots)} slots were given")
    return slots[:pages]
