"""How often each row was taken in a log, and what else can be counted there.

Owns the counting, in one pass and in memory that does not grow with the log. `audit.verify` judges; this
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stagehold.machines import labels
from stagehold.machines.audit_check import legal
from stagehold.machines.audit_read import records_of
from stagehold.machines.audit_tables import WORDS, Ints, book, flows, tables
from stagehold.machines.declared import MACHINES, rows_of
from stagehold.machines.matrix import table
from stagehold.machines.records import REFUSED_ROW, Totals
from stagehold.specs.declare import ANY, Kind, MachineSpec, Row


@dataclass(frozen=True, slots=True)
class Heat:
    """A log's counts, by machine name.

    `taken[name][place]` is for the row at that place of `spec.rows`; a row from any state has one count for
    all the states it was taken from. `ends[name]` counts instances by the terminal state they reached.
    """

    blocks: int
    records: int
    first_tick: int
    last_tick: int
    births: Mapping[str, int]
    taken: Mapping[str, tuple[int, ...]]
    refused: Mapping[str, int]
    ends: Mapping[str, Mapping[str, int]]
    totals: Totals

    def never(self, spec: MachineSpec) -> list[Row]:
        """The declared rows of a machine that were not taken."""
        return [row for row, count in zip(spec.rows, self.taken[spec.name], strict=True) if not count]


def stats(path: Path, machines: tuple[MachineSpec, ...] = MACHINES) -> Heat:
    """Count the log at `path`; `BadLogError` where it cannot be read or is of other machines."""
    words, births, totals = np.zeros(WORDS, np.int64), np.zeros(WORDS, np.int64), Totals()
    count, ticks = 0, [0, 0]
    for batch in legal(path, machines):
        if batch:
            ticks = [ticks[0] if count else batch[0].block.tick, batch[-1].block.tick]
        count += len(batch)
        np.add.at(births, [birth.machine for placed in batch for birth in placed.block.births], 1)
        records = records_of(batch)
        words += np.bincount(records["row"], minlength=WORDS)
        book(totals, flows(tables(machines), records))
    totals.refused = int(words.reshape(-1, 256)[:, REFUSED_ROW].sum())
    names = [spec.name for spec in machines]
    by_row = {spec.name: words[machine << 8 :][:REFUSED_ROW] for machine, spec in enumerate(machines)}
    return Heat(
        blocks=count,
        records=int(words.sum()),
        first_tick=ticks[0],
        last_tick=ticks[1],
        births=dict(zip(names, births.tolist(), strict=False)),
        taken={spec.name: _taken(spec, by_row[spec.name]) for spec in machines},
        refused={name: int(words[machine << 8 | REFUSED_ROW]) for machine, name in enumerate(names)},
        ends={spec.name: _ends(spec, by_row[spec.name]) for spec in machines},
        totals=totals,
    )


def markdown(heat: Heat, machines: tuple[MachineSpec, ...] = MACHINES) -> str:
    """All rows of all machines with their counts, as a Markdown table each; rows never taken are marked."""
    return "\n\n".join(_section(spec, heat) for spec in machines) + "\n"


def _section(spec: MachineSpec, heat: Heat) -> str:
    counts = heat.taken[spec.name]
    lines = [
        (
            f"{counts[at]:,}" if counts[at] else "**never**",
            labels.source(row),
            labels.label(spec, row),
            labels.word(row.target),
        )
        for at, row in labels.in_order(spec)
    ]
    share = f"{len(counts) - len(heat.never(spec))} of {len(counts)} rows taken"
    figures = f"{heat.births[spec.name]:,} instances, {sum(counts):,} steps, {heat.refused[spec.name]:,} refused"
    return f"## {spec.name}\n\n{share}; {figures}.\n\n{table(('taken', 'source', 'row', 'target'), lines)}"


def _taken(spec: MachineSpec, counts: Ints) -> tuple[int, ...]:
    """Counts by declared row, from those by expanded row: one from any state adds up over its states."""
    spread = sum(state.kind is not Kind.TERMINAL for state in spec.states)
    taken, at = [], 0
    for row in spec.rows:
        width = spread if row.source == ANY else 1
        taken.append(int(counts[at : at + width].sum()))
        at += width
    return tuple(taken)


def _ends(spec: MachineSpec, counts: Ints) -> dict[str, int]:
    """Instances by the terminal state that they reached: each reaches one, once."""
    ends = {labels.word(state.name): 0 for state in spec.states if state.kind is Kind.TERMINAL}
    for row, count in zip(rows_of(spec), counts.tolist(), strict=False):
        if labels.word(row.target) in ends:
            ends[labels.word(row.target)] += count
    return ends
