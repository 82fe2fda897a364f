"""Clients that give up: which requests are aborted, and how many passes after they came.

It owns the draw, which follows from the seed and the order of arrival alone. The scheduler does the aborting.
"""

from __future__ import annotations

import random

MOST_PASSES = 48
"""Passes after which a client that gives up has done so: some wait, some are read from the store, some decode."""


class HangUps:
    """`per_cent` of the requests, by a generator of its own."""

    def __init__(self, per_cent: float, seed: int) -> None:
        if not 0 <= per_cent <= 100:
            raise ValueError(f"hang-ups: expected 0 to 100 per cent, got {per_cent}")
        self._per_cent = per_cent
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._pass = 0
        self._due: dict[int, list[str]] = {}

    def arrived(self, rid: str) -> None:
        """Decide the fate of a request that came in this pass."""
        if self._random.uniform(0, 100) < self._per_cent:
            self._due.setdefault(self._pass + self._random.randint(1, MOST_PASSES), []).append(rid)

    def due(self) -> list[str]:
        """Who gives up in this pass; counts the passes."""
        self._pass += 1
        return self._due.pop(self._pass, [])
