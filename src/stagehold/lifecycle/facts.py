"""What one tick exchanges: a vector of fixed length, agreed by its minimum over all ranks.

The fact table of the operations, then capacity, then the digest of the last block twice, as it is and negated, so
that the one minimum gives both its smallest and its largest value.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIGEST_WORDS = 3
"""The digest travels as three words of 40 bits, which can be negated and compared without overflow."""

WORD_BITS = 40

TAIL = 1 + 2 * DIGEST_WORDS

_TAIL = Struct(f"={TAIL}q")
_WORD = (1 << WORD_BITS) - 1


class Agreement(NamedTuple):
    """What all ranks agreed on."""

    operations: NDArray[np.int64]
    staging_free: int
    same: bool


def pack(operations: NDArray[np.int64], staging_free: int, digest: bytes) -> NDArray[np.int64]:
    """The facts of one rank; int64, length `len(operations) + TAIL`, to be read only."""
    number = int.from_bytes(digest, "little")
    words = [number >> shift & _WORD for shift in range(0, DIGEST_WORDS * WORD_BITS, WORD_BITS)]
    # Joined as bytes, which costs a third of what joining arrays does: every tick packs one vector.
    return np.frombuffer(operations.tobytes() + _TAIL.pack(staging_free, *words, *[-word for word in words]), np.int64)


def unpack(agreed: NDArray[np.int64]) -> Agreement:
    """Read the element-wise minimum; `same` says that every rank had the same digest."""
    staging_free, *words = agreed[-TAIL:].tolist()
    same = all(words[i] == -words[i + DIGEST_WORDS] for i in range(DIGEST_WORDS))
    return Agreement(agreed[:-TAIL], staging_free, same)
