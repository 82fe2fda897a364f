"""One fixed scrambler of 64-bit words, from which known bytes and tokens are drawn; it holds no state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

VOCABULARY = 128_000
"""How many token ids there are, for prompts and answers alike."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def scramble(words: Words) -> Words:
    """A bijection in which every input bit reaches every output bit (splitmix64's finaliser)."""
    words = words * _GOLDEN + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))
