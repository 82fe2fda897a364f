"""Where two logs part: of two ranks, or of two builds that ran the same thing.

Owns the comparison. It says what differs first and judges neither log; `audit.verify` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from stagehold.machines import audit_words
from stagehold.machines.audit_read import Placed, blocks
from stagehold.machines.declared import MACHINES
from stagehold.machines.records import Block
from stagehold.specs.declare import MachineSpec
from stagehold.specs.tick import TICK


class Differs(Enum):
    """What differs first; the value says it in words."""

    DECLARATION = "they were written by different declarations, whose rows cannot be compared"
    TICK = "blocks of different ticks"
    BIRTH = "an instance"
    RECORD = "a record"
    LENGTH = "one log ends here"
    APART = "the group fell apart here, and one rank had heard more of it than the other"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference: `expected` stands in the first log, `found` in the second."""

    differs: Differs
    block: int
    tick: int
    instance: str
    event: str
    expected: str
    found: str

    def __str__(self) -> str:
        who = f", {self.instance}" if self.instance else ""
        on = f", on {self.event}" if self.event else ""
        place = f"tick {self.tick}, block {self.block}{who}{on}"
        return f"{place}: {self.differs.value}; expected {self.expected}, found {self.found}"


NOTHING = "nothing"
"""Stands for what one of the logs does not have."""

Item = TypeVar("Item")


def diff(a: Path, b: Path, machines: tuple[MachineSpec, ...] = MACHINES) -> Difference | None:
    """The first difference of `b` from `a`; None where they tell the same, block for block.

    Raises `BadLogError` where one of them cannot be read. Hashes are not compared: they follow from the rest.
    """
    for ours, theirs in zip_longest(blocks(a), blocks(b)):
        if ours is None or theirs is None:
            return _ended(ours, theirs)
        found = parted(ours.block, theirs.block, machines)
        if found is not None:
            return found
    return None


def _ended(ours: Placed | None, theirs: Placed | None) -> Difference:
    further = ours or theirs
    assert further is not None, "two logs do not end before either of them does"
    said = f"block {further.block.index} with {len(further.block.table())} records"
    texts = (said, NOTHING) if ours else (NOTHING, said)
    return Difference(Differs.LENGTH, further.block.index, further.block.tick, "", "", *texts)


def parted(ours: Block, theirs: Block, machines: tuple[MachineSpec, ...] = MACHINES) -> Difference | None:
    """The first difference between two blocks of the same place; None where they tell the same."""
    place = ours.index, ours.tick
    if ours.declaration != theirs.declaration:
        texts = ours.declaration.hex(), theirs.declaration.hex()
        return Difference(Differs.DECLARATION, *place, "", "", *texts)
    if (ours.tick, ours.births, ours.records) == (theirs.tick, theirs.births, theirs.records):
        return None
    if (apart := _apart(ours, theirs, machines)) is not None:
        return apart
    if ours.tick != theirs.tick:
        return Difference(Differs.TICK, *place, "", "", f"tick {ours.tick}", f"tick {theirs.tick}")
    if ours.births != theirs.births:
        texts = _texts(ours.births, theirs.births, lambda birth: audit_words.born(birth, machines))
        return Difference(Differs.BIRTH, *place, "", "birth", *texts)
    mine, other = ours.table().tolist(), theirs.table().tolist()
    first = next(one or two for one, two in zip_longest(mine, other) if one != two)
    texts = _texts(mine, other, lambda record: _said(record, machines))
    who, event = _instance(first, machines), audit_words.event(first, machines)
    return Difference(Differs.RECORD, *place, who, event, *texts)


def _apart(ours: Block, theirs: Block, machines: tuple[MachineSpec, ...]) -> Difference | None:
    """Whether they differ because a group fell apart: a collective may have ended on one rank and failed on another."""
    last = [_gave_up(block, machines) for block in (ours, theirs)]
    record = last[0] or last[1]
    if record is None:
        return None
    mine, other = (
        f"{len(block.table())} records in tick {block.tick}" if end is None else _said(end, machines)
        for block, end in zip((ours, theirs), last, strict=True)
    )
    who, event = _instance(record, machines), audit_words.event(record, machines)
    return Difference(Differs.APART, ours.index, ours.tick, who, event, mine, other)


def _gave_up(block: Block, machines: tuple[MachineSpec, ...]) -> audit_words.Record | None:
    """The record of a tick that waited for its group in vain, if the block has one: it is that log's last."""
    records: list[audit_words.Record] = block.table().tolist()
    for record in reversed(records):
        found = audit_words.row_of(record, machines)
        if found is not None and (found[0].name, found[1].event) == (TICK.name, "timeout"):
            return record
    return None


def _texts(ours: Sequence[Item], theirs: Sequence[Item], told: Callable[[Item], str]) -> tuple[str, str]:
    """The first pair that is not equal, in words, and as it stands where the words are the same."""
    one, two = next(pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1])
    mine, other = (NOTHING if item is None else told(item) for item in (one, two))
    return (mine, other) if mine != other else (f"{mine} {one}", f"{other} {two}")


def _instance(record: audit_words.Record, machines: tuple[MachineSpec, ...]) -> str:
    machine = record[1] >> 8
    return f"{machines[machine].name if machine < len(machines) else f'machine {machine}'} {record[0]}"


def _said(record: audit_words.Record, machines: tuple[MachineSpec, ...]) -> str:
    return f"{_instance(record, machines)}: {audit_words.describe(record, machines)}"
