"""A sweep: every combination of some options' values, each a cell with a name of what differs between them.

It owns the order and the names. Cells are run and kept by `cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from stagehold.lab.cell_options import OptionError, cell_of, told
from stagehold.lab.cells import Cell

CELLS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Sweep:
    """Cells in order, the last option's values fastest; `varied` are the options that have several, by name."""

    varied: Mapping[str, Sequence[Any]]
    settings: tuple[Mapping[str, Any], ...]
    cells: tuple[Cell, ...]

    def names(self) -> list[str]:
        """What differs, for each cell: `store_gbps=5 mode=cache`."""
        return [" ".join(f"{name}={told(name, one[name])}" for name in self.varied) for one in self.settings]


def sweep(options: Mapping[str, Sequence[Any]]) -> Sweep:
    """Every combination of the options' values; `OptionError` where they cannot be combined, or are too many."""
    count = prod(len(found) for found in options.values())
    if not 1 <= count <= CELLS_MAX:
        raise OptionError(f"{count:,} cells: expected 1 to {CELLS_MAX:,}")
    settings = tuple(_combined(options))
    varied = {name: found for name, found in options.items() if len(found) > 1}
    return Sweep(varied, settings, tuple(cell_of(one) for one in settings))


def _combined(options: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*options.values()):
        yield dict(zip(options, values, strict=True))
