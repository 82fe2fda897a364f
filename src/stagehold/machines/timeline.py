"""Requests over time, from a log: a lane for each request, and one for each hold that it had a claim on.

Owns the choice of requests and the lanes' content: which states they were in, from which tick, by which
event. Two passes over the log, and memory for the chosen ones only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stagehold.machines import audit_words, labels
from stagehold.machines.audit_check import legal
from stagehold.machines.audit_read import Placed, blocks, records_of
from stagehold.machines.audit_tables import tables
from stagehold.machines.declared import MACHINES
from stagehold.machines.records import Birth, HandleKey
from stagehold.specs.declare import Books, MachineSpec
from stagehold.specs.request import REQUEST

REQUESTS_MAX = 200
"""So many fit on a page that a browser opens at once; those with the most steps are the ones to see."""


@dataclass(frozen=True, slots=True)
class Step:
    """One record of an instance, or its birth. `order` counts the records of the log."""

    tick: int
    event: str
    state: str
    order: int
    detail: str


@dataclass(slots=True)
class Lane:
    """One instance: its machine's name, its title, its steps in order, the first being its birth."""

    machine: str
    title: str
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One request: its own lane first, then its holds in the order of its claims."""

    title: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Timelines:
    """The chosen requests in order of birth, and how many were left out."""

    requests: tuple[Timeline, ...]
    left_out: int

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it, for the page."""
        return {"requests": [_plain(request) for request in self.requests]}


def timelines(
    path: Path,
    *,
    requests_max: int = REQUESTS_MAX,
    machines: tuple[MachineSpec, ...] = MACHINES,
    wanted: Collection[str] = (),
) -> Timelines:
    """Requests of the log at `path`: those whose ids are wanted, then those with the most steps.

    `BadLogError` where it cannot be read.
    """
    survey = _Survey(machines, frozenset(wanted))
    for batch in legal(path, machines):
        survey.add(batch)
    ranked = sorted(survey.steps, key=lambda n: (n not in survey.first, -survey.steps[n], n))
    chosen = {number: (number, *survey.holds.get(number, ())) for number in sorted(ranked[:requests_max])}
    lanes = _collected(path, {number for group in chosen.values() for number in group}, machines)
    shown = [
        Timeline(lanes[number].title, tuple(lanes[one] for one in group if one in lanes))
        for number, group in chosen.items()
    ]
    return Timelines(tuple(shown), len(ranked) - len(chosen))


@dataclass(slots=True)
class _Survey:
    """First pass: which requests are wanted, their records counted, and the holds that they had claims on, in order."""

    machines: tuple[MachineSpec, ...]
    wanted: frozenset[str]
    first: set[int] = field(default_factory=set)
    steps: dict[int, int] = field(default_factory=dict)
    holds: dict[int, list[int]] = field(default_factory=dict)

    def add(self, batch: Sequence[Placed]) -> None:
        """Take in the next blocks."""
        for placed in batch:
            born = [birth for birth in placed.block.births if self._is(birth.machine, REQUEST)]
            self.steps.update((birth.number, 0) for birth in born)
            self.first.update(b.number for b in born if isinstance(b.key, HandleKey) and b.key.rid in self.wanted)
        records = records_of(batch)
        numbers, counts = np.unique(records["instance"], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number in self.steps:
                self.steps[number] += count
        books = tables(self.machines).books[records["row"]]
        for number, _, _, detail in records[books == list(Books).index(Books.QUERIED)].tolist():
            holds = self.holds.setdefault(number, [])
            if detail >> 32 not in holds:
                holds.append(detail >> 32)

    def _is(self, machine: int, spec: MachineSpec) -> bool:
        return machine < len(self.machines) and self.machines[machine].name == spec.name


def _collected(path: Path, wanted: set[int], machines: tuple[MachineSpec, ...]) -> dict[int, Lane]:
    """Second pass: the lanes of the wanted instances."""
    lanes: dict[int, Lane] = {}
    numbers, order = np.array(sorted(wanted), np.int64), 0
    for placed in blocks(path):
        block = placed.block
        for birth in block.births:
            if birth.number in wanted and birth.machine < len(machines):
                lanes[birth.number] = _lane(birth, block.tick, order, machines)
        records = block.table()
        for at in np.flatnonzero(np.isin(records["instance"], numbers)).tolist():
            record = records[at].item()
            if record[0] in lanes:
                lane = lanes[record[0]]
                lane.steps.append(_step(record, lane, block.tick, order + at, machines))
        order += len(records)
    return lanes


def _lane(birth: Birth, tick: int, order: int, machines: tuple[MachineSpec, ...]) -> Lane:
    spec = machines[birth.machine]
    title = f"{spec.name} {birth.number}: {audit_words.key(birth.key)}"
    state = labels.word(type(spec.initial)(birth.state))
    return Lane(spec.name, title, [Step(tick, "born", state, order, "")])


def _step(record: audit_words.Record, lane: Lane, tick: int, order: int, machines: tuple[MachineSpec, ...]) -> Step:
    found = audit_words.row_of(record, machines)
    if found is None:
        return Step(tick, audit_words.event(record, machines), lane.steps[-1].state, order, "")
    spec, row = found
    detail = audit_words.detail(spec, row, record[3])
    return Step(tick, labels.trigger(spec, row), labels.word(row.target), order, detail)


def _plain(request: Timeline) -> dict[str, Any]:
    own = request.lanes[0].steps
    span = f"ticks {own[0].tick} to {own[-1].tick}, {len(own) - 1} steps, {own[-1].state}"
    lanes = [
        {"machine": lane.machine, "title": lane.title, "steps": [_packed(step) for step in lane.steps]}
        for lane in request.lanes
    ]
    return {"title": request.title, "summary": span, "lanes": lanes}


def _packed(step: Step) -> list[Any]:
    return [step.tick, step.event, step.state, step.order, step.detail]
