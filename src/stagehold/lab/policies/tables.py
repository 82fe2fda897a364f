"""Changes of a declared table: the rows stay in their places, some with other targets, limits or resources."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any

from stagehold.specs.declare import ANY, MachineSpec, Row

At = tuple[IntEnum | str, str, IntEnum | None]
"""Where a row stands: source, event, outcome."""


def with_rows(spec: MachineSpec, changes: Mapping[At, Mapping[str, Any]]) -> MachineSpec:
    """`spec` with other fields in some rows; KeyError for a row that it does not have."""
    rows = {(row.source, row.event, row.outcome): row for row in spec.rows}
    for at in changes:
        if at not in rows:
            raise KeyError(f"machine {spec.name!r} has no row {at}")
    return spec.model_copy(
        update={"rows": tuple(row.model_copy(update=dict(changes.get(at, {}))) for at, row in rows.items())}
    )


def without_deadlines(spec: MachineSpec, states: Collection[IntEnum]) -> MachineSpec:
    """`spec` whose waits in `states` end with what they wait for, and with nothing else."""
    return spec.model_copy(
        update={
            "states": tuple(
                state.model_copy(update={"deadline": None}) if state.name in states else state for state in spec.states
            )
        }
    )


def without_clocks(spec: MachineSpec, limits: Collection[str]) -> MachineSpec:
    """`spec` whose repeats are no longer bounded by `limits`."""
    return spec.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"clock": None}) if row.clock in limits else row for row in spec.rows)
        }
    )


def uncounted(spec: MachineSpec, event: str) -> MachineSpec:
    """`spec` in which `event` counts nothing, whatever it decides."""
    return spec.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"counts": None}) if row.event == event else row for row in spec.rows)
        }
    )


def owning(spec: MachineSpec, states: Collection[IntEnum], resource: str) -> MachineSpec:
    """`spec` in which `states` own `resource`, too: rows that lead in take it, rows that lead out release it."""

    def changed(row: Row) -> Row:
        inside, leads_in = row.source in states, row.target in states
        if row.source == ANY or inside == leads_in:
            return row
        if leads_in:
            return row.model_copy(update={"takes": (*row.takes, resource)})
        return row.model_copy(update={"releases": (*row.releases, resource)})

    return spec.model_copy(
        update={
            "states": tuple(
                state.model_copy(update={"owns": (*state.owns, resource)}) if state.name in states else state
                for state in spec.states
            ),
            "rows": tuple(changed(row) for row in spec.rows),
        }
    )
