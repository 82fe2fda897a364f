"""KV bytes whose right content is known, and the prompts of a World: few stems, forked often.

Owns two functions, tokens to bytes and numbers to tokens. The bytes of a token depend on its namespace, on its part
and on every token before it, as KV does, so that a page of a sibling at the same place is seen to be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from stagehold.cache.components.full import SPINE

Tokens = npt.NDArray[np.uint32]
Kv = npt.NDArray[np.uint8]

TOKEN_BYTES = 8
"""Bytes of one token in one part: one hash."""

FORK_TOKENS = 1 << 20
"""Ids from here on belong to forks, those below to stems."""

ANSWER_TOKENS = 1 << 24
"""Ids from here on are answers."""


def words_of(namespace: bytes, tokens: Tokens) -> npt.NDArray[np.uint64]:
    """A word for each token from position 0 on: the hash of namespace and all tokens up to it."""
    running = xxhash.xxh3_64(namespace)
    words = np.empty(len(tokens), dtype=np.uint64)
    for position, token in enumerate(tokens.tolist()):
        running.update(token.to_bytes(4, "little"))
        words[position] = running.intdigest()
    return words


def spread(words: npt.NDArray[np.uint64], parts: int, component: str = SPINE) -> Kv:
    """The right bytes of a component behind each word: uint8, shape (parts, words, TOKEN_BYTES).

    No two parts and no two components have the same. Of KV they are the token's, of a state those behind the token.
    """
    first = 1 if component == SPINE else xxhash.xxh3_64_intdigest(component.encode()) >> 8 | 1
    masks = np.uint64(first) + np.arange(0, 2 * parts, 2, dtype=np.uint64)
    return (words * masks[:, None]).view(np.uint8).reshape(parts, len(words), TOKEN_BYTES)


def answer_to(tokens: Tokens) -> int:
    """The token that follows: the same for the same tokens, whoever asks."""
    return ANSWER_TOKENS + xxhash.xxh3_64_intdigest(tokens.tobytes()) % 8


@dataclass(frozen=True, slots=True)
class Prompt:
    """`shared` tokens of stem `stem`, then `own` tokens of fork `fork`. Equal numbers make equal prompts."""

    stem: int
    shared: int
    fork: int = 0
    own: int = 0

    def tokens(self, branches: tuple[int, ...]) -> Tokens:
        """The ids; stem i leaves stem 0 at token `branches[i]`. At least one token long."""
        stem = self.stem % len(branches)
        positions = np.arange(max(1, self.shared), dtype=np.uint32)
        shared = positions + np.where(positions >= branches[stem], 1000 * (stem + 1), 0).astype(np.uint32)
        own = np.arange(self.own, dtype=np.uint32) + np.uint32(FORK_TOKENS + 1000 * self.fork)
        return np.concatenate((shared, own)).astype(np.uint32)
