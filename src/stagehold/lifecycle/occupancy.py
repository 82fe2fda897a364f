"""How many instances stand in each state, and how many ticks they have stood there: added up from the records.

Owns both counts. It costs what happens: an instance that stays where it is costs nothing, however long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from stagehold.machines import MACHINES, Birth, rows_of
from stagehold.machines.counters import HERE
from stagehold.machines.records import REFUSED_ROW
from stagehold.specs.declare import Kind, MachineSpec

Place = tuple[int, int]
"""Machine index and state, as records have them."""


@lru_cache(maxsize=1)
def places() -> dict[Place, str]:
    """Every state that an instance can stand in between ticks, as `machine.state`; those of *tick* leave no records."""
    return {
        (index, int(state.name)): f"{spec.name}.{state.name.name.lower()}"
        for index, spec in enumerate(MACHINES)
        if spec.name in HERE and not spec.sparse
        for state in spec.states
        if state.kind not in (Kind.TERMINAL, Kind.PASSING, Kind.VISIT)
    }


@lru_cache(maxsize=1)
def _moves() -> dict[int, tuple[Place, Place]]:
    """Record code to where the row leads from and to, for rows that lead elsewhere."""
    return {
        index << 8 | place: ((index, int(row.source)), (index, int(row.target)))
        for index, spec in enumerate(MACHINES)
        if _counts(spec)
        for place, row in enumerate(rows_of(spec))
        if row.source is not row.target
    }


def _counts(spec: MachineSpec) -> bool:
    return spec.name in HERE and not spec.sparse


class Occupancy:
    """Instances and instance ticks by state."""

    def __init__(self) -> None:
        self._now: Counter[Place] = Counter()
        self._ticks: Counter[Place] = Counter()
        self._since: dict[Place, int] = {}

    def add(self, tick: int, records: Iterable[tuple[Any, ...]], births: Iterable[Birth]) -> None:
        """What happened in one tick."""
        moves = _moves()
        for birth in births:
            self._change((birth.machine, birth.state), 1, tick)
        for _, code, _, _ in records:
            if code & REFUSED_ROW != REFUSED_ROW and code in moves:
                source, target = moves[code]
                self._change(source, -1, tick)
                self._change(target, 1, tick)

    def _change(self, place: Place, by: int, tick: int) -> None:
        if place in places():
            self._ticks[place] += self._now[place] * (tick - self._since.get(place, tick))
            self._since[place] = tick
            self._now[place] += by

    def plus(self, tick: int, records: Iterable[tuple[Any, ...]], births: Iterable[Birth]) -> Occupancy:
        """These, and what one more block says."""
        more = Occupancy()
        more._now, more._ticks, more._since = Counter(self._now), Counter(self._ticks), dict(self._since)
        more.add(tick, records, births)
        return more

    def standing(self) -> dict[str, int]:
        """Instances by state, every state named."""
        return {name: self._now[place] for place, name in places().items()}

    def ticks(self, tick: int) -> dict[str, int]:
        """Ticks that instances have spent in each state up to `tick`, every state named."""
        return {
            name: self._ticks[place] + self._now[place] * (tick - self._since.get(place, tick))
            for place, name in places().items()
        }
