"""What one tick exchanges: a vector of fixed length, agreed by its minimum over all ranks.

The fact table of the operations, then what must be the same everywhere and what each rank has left. Words and
capacities travel twice, as they are and negated, so that the one minimum gives both their smallest and their largest
value.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Facts = NDArray[np.int64]
"""One vector of fixed length a tick; every element is agreed by its minimum over all ranks."""

DIGEST_WORDS = 3
"""The digest travels as three words of 40 bits, which can be negated and compared without overflow."""

WORD_BITS = 40

WORDS = DIGEST_WORDS + 1
"""The digest, and the mark of which operation has which place."""


class Capacity(NamedTuple):
    """Pages that a rank has left: of staging, of the pin cap, of the device; then those of up to three components more.

    A vector has room for three, whatever there are, so that its length follows from the window alone.
    """

    staging: int
    pins: int
    device: int
    staging_1: int = 0
    device_1: int = 0
    staging_2: int = 0
    device_2: int = 0
    staging_3: int = 0
    device_3: int = 0

    def of(self, component: int) -> tuple[int, int]:
        """Staging and device pages of one component; 0 is the one that carries the tree."""
        return (self.staging, self.device) if component == 0 else (self[1 + 2 * component], self[2 + 2 * component])


TAIL = 2 * (WORDS + len(Capacity._fields))

_TAIL = Struct(f"={TAIL}q")
_WORD = (1 << WORD_BITS) - 1
_NOTHING = Capacity(0, 0, 0)


class Agreement(NamedTuple):
    """What all ranks agreed on; `least` and `most` are over the ranks, `same` says that they recorded the same."""

    operations: Facts
    least: Capacity
    most: Capacity
    same: bool


def pack(operations: Facts, digest: bytes, capacity: Capacity = _NOTHING, mark: int = 0) -> Facts:
    """The facts of one rank; int64, length `len(operations) + TAIL`, to be read only.

    `digest` is what every rank must have alike, of which 120 bits travel; `mark` tells operations and places, 40 bits.
    """
    number = int.from_bytes(digest, "little")
    words = [*(number >> shift & _WORD for shift in range(0, DIGEST_WORDS * WORD_BITS, WORD_BITS)), mark & _WORD]
    once = (*words, *capacity)
    # Joined as bytes, which costs a third of what joining arrays does: every tick packs one vector.
    return np.frombuffer(operations.tobytes() + _TAIL.pack(*once, *[-value for value in once]), np.int64)


def unpack(agreed: Facts) -> Agreement:
    """Read the element-wise minimum."""
    tail = agreed[-TAIL:].tolist()
    least, most = tail[: TAIL // 2], [-value for value in tail[TAIL // 2 :]]
    same = least[:WORDS] == most[:WORDS]
    return Agreement(agreed[:-TAIL], Capacity(*least[WORDS:]), Capacity(*most[WORDS:]), same)


def differing(facts: Facts) -> Facts:
    """Facts that no agreement with this digest can call the same: what a rank says that knows of a difference."""
    told = facts.copy()
    told[-TAIL] = -1  # no word is negative, so that the least and the most of it cannot be equal
    return told
