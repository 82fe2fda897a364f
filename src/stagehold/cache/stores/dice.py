"""Seeded dice for stores that are random on purpose, cheap to copy in a snapshot."""

from __future__ import annotations

import random
from typing import Any


class Dice(random.Random):
    """`random.Random`, whose deep copy takes its state over as it is instead of number by number."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Dice:
        """Return dice that will fall as these."""
        copied = Dice()
        copied.setstate(self.getstate())
        return copied
