"""What one tick exchanges: a vector of fixed length, agreed by its minimum over all ranks.

The fact table of the operations, then capacity, then the digest of the last block twice, as it is and negated, so
that the one minimum gives both its smallest and its largest value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DIGEST_WORDS = 3
"""The digest travels as three words of 40 bits, which can be negated and compared without overflow."""

TAIL = 1 + 2 * DIGEST_WORDS


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks agreed on."""

    operations: NDArray[np.int64]
    staging_free: int
    same: bool


def pack(operations: NDArray[np.int64], staging_free: int, digest: bytes) -> NDArray[np.int64]:
    """The facts of one rank; int64, length `len(operations) + TAIL`."""
    words = [int.from_bytes(digest[5 * i : 5 * i + 5], "little") for i in range(DIGEST_WORDS)]
    tail = np.array([staging_free, *words, *(-word for word in words)], dtype=np.int64)
    return np.concatenate((operations, tail))


def unpack(agreed: NDArray[np.int64]) -> Agreement:
    """Read the element-wise minimum; `same` says that every rank had the same digest."""
    tail = agreed[-TAIL:]
    lowest, highest = tail[1 : 1 + DIGEST_WORDS], -tail[1 + DIGEST_WORDS :]
    return Agreement(agreed[:-TAIL], int(tail[0]), bool((lowest == highest).all()))
