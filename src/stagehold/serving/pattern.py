"""KV bytes whose right content is known: a fixed function of (namespace, layer, K or V, token, position).

It owns the function and the layout of a page in the device tensor; it never decides which slots are used.
Filling and checking are one broadcast xor over 64-bit words, so that a replay can afford to see every byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash

from stagehold.serving.words import scramble

Tokens = npt.NDArray[np.uint32]
Slots = npt.NDArray[np.int64]

WORD = 8
CHUNK_PAGES = 16  # 2 MiB of expected bytes at the default sizes: what a step touches stays in the L2 cache


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape of one component's KV: `parts` = 2 x layers, part 2i is K of layer i and part 2i + 1 its V."""

    layers: int = 4
    token_part_bytes: int = 1024
    page_size: int = 16

    @property
    def parts(self) -> int:
        """Rows of the device tensor's first axis."""
        return 2 * self.layers

    @property
    def token_bytes(self) -> int:
        """KV bytes of one token over all parts."""
        return self.parts * self.token_part_bytes

    @property
    def page_part_bytes(self) -> int:
        """Bytes of one page in one part."""
        return self.page_size * self.token_part_bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a check found: bytes looked at, bytes that differ, positions of the tokens that they belong to."""

    compared_bytes: int
    wrong_bytes: int
    wrong_positions: tuple[int, ...]


class Pattern:
    """The known bytes of one namespace in one layout, on the device of the tensor they are written to.

    `namespace` is any stable text that tells namespaces apart. `first` is the position of `tokens[0]` in its
    request; `slots[p]` is the slot of the request's page p.
    """

    def __init__(self, layout: Layout, namespace: str) -> None:
        if layout.token_part_bytes % WORD:
            raise ValueError(f"token_part_bytes={layout.token_part_bytes} must be a multiple of {WORD}")
        self.layout = layout
        seed = np.uint64(xxhash.xxh3_64_intdigest(namespace.encode()))
        parts = np.arange(layout.parts, dtype=np.uint64)
        words = np.arange(layout.token_part_bytes // WORD, dtype=np.uint64)
        self._part_seeds = scramble(parts + seed)[:, None]
        self._word_masks = torch.from_numpy(scramble(words ^ ~seed).view(np.int64))

    def expected(self, tokens: Tokens, first: int) -> torch.Tensor:
        """Right bytes of `tokens` as uint8 [parts, tokens, token_part_bytes], on the host."""
        return self._words(tokens, first).view(torch.uint8)

    def fill(self, pool: torch.Tensor, slots: Slots, tokens: Tokens, first: int) -> None:
        """Write the bytes of `tokens` into their pages of `pool`, as a forward pass would."""
        for pages, offset, part in self._pieces(slots, tokens, first):
            view = self._view(pool)
            words = self._words(part, offset).to(pool.device)
            if len(part) == len(pages) * self.layout.page_size:
                view[:, torch.from_numpy(pages).to(pool.device)] = words.view(
                    self.layout.parts, len(pages), self.layout.page_size, -1
                )
            else:
                start = offset % self.layout.page_size
                view[:, int(pages[0]), start : start + len(part)] = words

    def compare(self, pool: torch.Tensor, slots: Slots, tokens: Tokens, first: int) -> Comparison:
        """Look at the bytes of `tokens` in `pool`."""
        wrong = 0
        positions: list[int] = []
        for pages, offset, part in self._pieces(slots, tokens, first):
            found = self._gather(pool, pages, offset, len(part))
            right = self._words(part, offset).to(pool.device)
            if torch.equal(found, right):
                continue
            differs = (found.view(torch.uint8) != right.view(torch.uint8)).sum(dim=(0, 2)).cpu().numpy()
            wrong += int(differs.sum())
            positions += (offset + np.flatnonzero(differs)).tolist()
        return Comparison(len(tokens) * self.layout.token_bytes, wrong, tuple(positions))

    def _words(self, tokens: Tokens, first: int) -> torch.Tensor:
        positions = np.arange(first, first + len(tokens), dtype=np.uint64)
        seeds = scramble((positions << np.uint64(32)) | tokens)[None, :] * (self._part_seeds | np.uint64(1))
        return torch.from_numpy(seeds.view(np.int64))[:, :, None] ^ self._word_masks

    def _view(self, pool: torch.Tensor) -> torch.Tensor:
        layout = self.layout
        return pool.view(torch.int64).view(
            layout.parts, pool.shape[1], layout.page_size, layout.token_part_bytes // WORD
        )

    def _gather(self, pool: torch.Tensor, pages: Slots, offset: int, count: int) -> torch.Tensor:
        start = offset % self.layout.page_size
        if len(pages) == 1:
            return self._view(pool)[:, int(pages[0]), start : start + count]
        found = self._view(pool)[:, torch.from_numpy(pages).to(pool.device)]
        return found.view(self.layout.parts, count, -1)

    def _pieces(self, slots: Slots, tokens: Tokens, first: int) -> list[tuple[Slots, int, Tokens]]:
        """A span as runs of whole pages and parts of pages: (their slots, first token's position, tokens)."""
        size = self.layout.page_size
        pieces = []
        at = first
        end = first + len(tokens)
        while at < end:
            page = at // size
            whole = min((end - at) // size, CHUNK_PAGES) if at % size == 0 else 0
            stop = at + whole * size if whole else min(end, (page + 1) * size)
            pieces.append((slots[page : page + max(1, whole)], at, tokens[at - first : stop - first]))
            at = stop
        return pieces
