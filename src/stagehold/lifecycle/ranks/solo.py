"""The group of one rank: what it found out is what is agreed."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Facts = NDArray[np.int64]
"""One vector of fixed length a tick; every element is agreed by its minimum over all ranks."""


class Group(Protocol):
    """All ranks that share scheduling. One `exchange` a tick, of the same length on every rank."""

    size: int

    def exchange(self, facts: Facts) -> Facts:
        """The element-wise minimum over all ranks; int64, same shape."""


class Solo:
    """One rank."""

    size = 1

    def exchange(self, facts: Facts) -> Facts:
        """A copy, so that a fact that arrives later cannot slip into what was agreed."""
        return facts.copy()
