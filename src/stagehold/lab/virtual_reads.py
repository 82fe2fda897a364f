"""What became of the pages that a store gave, and how often requests asked again: seen from outside the engine.

It owns two counts that mean the same whatever policy serves. A page that was read has been *used* when a request is
admitted on it as a hit of the store and finds its content in the slot; every read serves one such use at most, and
what is never used was wasted. A *retry* is a launch of a request that waited in `retry`, told by the audit.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold.machines import MACHINES, Block, Sink, rows_of
from stagehold.specs.outcomes import Launch

Words = npt.NDArray[np.uint64]


def _relaunches() -> list[int]:
    """Record codes of the rows that launch a request again."""
    return [
        machine << 8 | at
        for machine, spec in enumerate(MACHINES)
        if spec.name == "request"
        for at, row in enumerate(rows_of(spec))
        if row.event == "due" and row.outcome is not Launch.CAP
    ]


RELAUNCHES = _relaunches()


class Reads:
    """Pages read from the store, by content: those that were used, and the rest."""

    def __init__(self) -> None:
        self.pages = 0
        self.used = 0
        self._unused: Counter[int] = Counter()

    @property
    def wasted(self) -> int:
        """Pages that were read and not used, those included that still wait for their request."""
        return self.pages - self.used

    def brought(self, contents: list[int]) -> None:
        """The store gave these pages."""
        self.pages += len(contents)
        self._unused.update(contents)

    def taken_over(self, contents: Words) -> None:
        """A request was admitted on these pages as hits of the store, and they hold what they should."""
        for content in contents.tolist():
            left = self._unused[content]
            if left:
                self.used += 1
                self._unused[content] = left - 1

    def forget(self) -> None:
        """What was read so far does not count."""
        self.pages = self.used = 0
        self._unused.clear()


class Relaunches:
    """Stands before an audit sink, and counts the launches of each attempt behind its first."""

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self._times: Counter[int] = Counter()

    @property
    def most(self) -> int:
        """Of the attempt that was launched most often."""
        return max(self._times.values(), default=0)

    @property
    def all(self) -> int:
        """Of all attempts together."""
        return self._times.total()

    def block(self, block: Block) -> None:
        """One tick's block."""
        if block.records:
            table: Any = block.table()
            self._times.update(table["instance"][np.isin(table["row"], RELAUNCHES)].tolist())
        if self._sink is not None:
            self._sink(block)
