"""The steps that the machine bench takes: a mix recorded from the audit log of a replay.

Owns the file format: which rows were taken how often, and in how many blocks they lay. It measures nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from stagehold.machines import MACHINES, rows_of
from stagehold.machines.audit import blocks
from stagehold.machines.labels import row_name
from stagehold.machines.records import REFUSED_ROW
from stagehold.specs.declare import Row

STEPS = 10_000
SHIPPED = "mix/replay.json"

Taking = tuple[str, IntEnum, str, IntEnum | None]
"""One step that was taken: machine, state, event, outcome."""


class MixError(ValueError):
    """A mix that cannot be used, and what to do."""


@dataclass(frozen=True, slots=True)
class Mix:
    """`taken`: how often each row; `blocks`: audit blocks, hence ticks, in which these steps lay."""

    taken: Mapping[Taking, int]
    blocks: int

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return sum(self.taken.values())

    @property
    def block_steps(self) -> float:
        """Steps that share a block, on average over all blocks, empty ones too."""
        return self.steps / self.blocks


def shipped_mix() -> Mix:
    """The first 10,000 steps of the main run (500 requests of the conversation trace, crowded; see the Makefile)."""
    return read_mix(Path(str(files("stagehold.lab") / "data" / SHIPPED)))


def recorded_mix(log: Path, steps: int = STEPS) -> Mix:
    """The first `steps` steps of an audit log, or all it has; refusals are no steps. `BadLogError` for a bad log."""
    taken: Counter[Taking] = Counter()
    seen = 0
    for placed in blocks(log):
        seen += 1
        for word in placed.block.table()["row"].tolist():
            if word & 0xFF != REFUSED_ROW and taken.total() < steps:
                spec = MACHINES[word >> 8]
                taken[_taking(spec.name, rows_of(spec)[word & 0xFF])] += 1
        if taken.total() == steps:
            break
    if not taken:
        raise MixError(f"{log}: no step was recorded; expected the log of a run")
    return Mix(taken, seen)


def write_mix(path: Path, mix: Mix) -> None:
    """Keep a mix as a JSON file, rows in order of declaration."""
    rows = {name: mix.taken[taking] for name, taking in _by_name() if mix.taken.get(taking)}
    path.write_bytes(orjson.dumps({"blocks": mix.blocks, "rows": rows}, option=orjson.OPT_INDENT_2) + b"\n")


def read_mix(path: Path) -> Mix:
    """Read a mix back; MixError where it names a row that is declared no more."""
    said: Mapping[str, Any] = orjson.loads(path.read_bytes())
    known = dict(_by_name())
    gone = [name for name in said["rows"] if name not in known]
    if gone:
        raise MixError(f"{path}: no row is declared as {', '.join(gone)}; record it anew (bench machine --log --keep)")
    return Mix({known[name]: count for name, count in said["rows"].items()}, said["blocks"])


def _taking(machine: str, row: Row) -> Taking:
    assert isinstance(row.source, IntEnum)  # `rows_of` has written out every row from any state
    return machine, row.source, row.event, row.outcome


def _by_name() -> Iterator[tuple[str, Taking]]:
    for spec in MACHINES:
        for row in rows_of(spec):
            yield row_name(spec, row), _taking(spec.name, row)
