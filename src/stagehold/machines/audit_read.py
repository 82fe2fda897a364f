"""The one reader of audit logs: lines to blocks, and what may be wrong with either.

Owns the names of all damage that the readers tell apart, and where it stands. It holds a few blocks at a time
and judges only whether a line is a whole block; chain and rows are judged by `audit_check`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stagehold.machines.audit_lines import BLOCK, EVENTS, REFUSAL, SEAL, SEALED, block_line, is_sealed, rendered
from stagehold.machines.records import DIGEST_BYTES, RECORD, Block, chain, decode

BATCH = 1 << 16
"""Enough records to make numpy pay, few enough to hold in memory."""

LINE_BYTES = 1 << 26
"""No line is longer: a block of three million records would be."""


LINE_COMMAS = 1 << 20
"""Most in a line: a tick of a hundred thousand births has fewer. What a line holds takes some two hundred bytes of
memory for each."""


class Damage(Enum):
    """What can be wrong with a log; the value says it in words."""

    TRUNCATED = "the log ends too early"
    CUT = "the log ends at another block than it should"
    UNREADABLE = "not a line of an audit log"
    TOO_LONG = "a line longer than any of an audit log"
    ALTERED = "the block is not what was written"
    ALTERED_NOTE = "the line is not what was written"
    FOREIGN = "written by other declarations"
    MISSING_BLOCK = "a block is missing"
    SWAPPED = "a block stands in the place of another"
    REPEATED_BLOCK = "a block comes again"
    BROKEN_CHAIN = "the block does not follow the one before it"
    BAD_BIRTH = "an instance that cannot be born so"
    UNBORN = "a record of an instance that was never born"
    ILLEGAL_ROW = "a record that names no row of its instance's machine"
    FALSE_REFUSAL = "an event refused although a row accepts it"
    DISCONTINUOUS = "a row taken from another state than the instance was in"
    BAD_DETAIL = "a detail that the row's books cannot read"
    UNBALANCED = "tokens queried are not those spliced, lost and open"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first damage of a log, and where: `line` counts from 1, `block` is the index, if it has one."""

    damage: Damage
    path: Path
    line: int
    block: int | None
    expected: str
    found: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}: " + ("" if self.block is None else f"block {self.block}: ")
        return f"{place}{self.damage.value}; expected {self.expected}, found {self.found}"


class BadLogError(ValueError):
    """A log that cannot be read on; carries the `fault`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Placed:
    """A block, the number of its line from 1, and the digest that its content must have.

    `exact`: the line is, byte for byte, what the log writes for this block. `refusals` are the lines that follow it,
    one for each refused event, as they stand there.
    """

    line: int
    block: Block
    computed: bytes
    exact: bool
    refusals: tuple[bytes, ...] = ()


def blocks(path: Path) -> Iterator[Placed]:
    """The blocks of the log at `path`, in order, each with its refusals; other lines are looked at and passed over.

    Raises `BadLogError` at the first line that is no whole line of a log; OSError where there is no file. In memory
    there is never more than a line of at most `LINE_BYTES`.
    """
    last: Placed | None = None
    told: list[bytes] = []
    for line, text in _lines(path):
        data = _parsed(path, line, text)
        event = data["event"]
        if event == REFUSAL and last is not None:
            told.append(text)
            continue
        if last is not None:
            yield replace(last, refusals=tuple(told)) if told else last
        last, told = None, []
        if event == BLOCK:
            last = _placed(path, line, data, text)
        else:
            _note(path, line, data, text)
    if last is not None:
        yield replace(last, refusals=tuple(told)) if told else last


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1. The last one must have its end, and none may be too long to be held."""
    with path.open("rb") as file:
        line = 0
        while text := file.readline(LINE_BYTES):
            line += 1
            if text.endswith(b"\n"):
                yield line, text
                continue
            if len(text) == LINE_BYTES:
                expected = f"at most {LINE_BYTES:,} bytes"
                raise BadLogError(Fault(Damage.TOO_LONG, path, line, None, expected, "more than that"))
            found = f"{len(text)} bytes without an end of line"
            raise BadLogError(Fault(Damage.TRUNCATED, path, line, None, "one whole JSON object", found))


def batches(path: Path) -> Iterator[list[Placed]]:
    """The same in lists of about `BATCH` records; what precedes a bad line comes before its error."""
    waiting: list[Placed] = []
    size = 0
    try:
        for placed in blocks(path):
            waiting.append(placed)
            size += len(placed.block.records) // RECORD.itemsize
            if max(size, len(waiting)) >= BATCH:
                yield waiting
                waiting, size = [], 0
    except BadLogError:
        yield waiting
        raise
    yield waiting


def records_of(placed: Sequence[Placed]) -> NDArray[np.void]:
    """All records of several blocks, dtype `RECORD`, shape (n,)."""
    return np.frombuffer(b"".join(one.block.records for one in placed), RECORD)


def read_line(path: Path, line: int, text: bytes) -> Block | dict[str, Any]:
    """One whole line of a log that may still grow: a block, or the facts of another line. `BadLogError` if neither."""
    data = _parsed(path, line, text)
    if data["event"] == BLOCK:
        return _placed(path, line, data, text).block
    return data


def _parsed(path: Path, line: int, text: bytes) -> dict[str, Any]:
    if text.count(b",") > LINE_COMMAS:
        raise BadLogError(Fault(Damage.TOO_LONG, path, line, None, f"at most {LINE_COMMAS:,} commas", "more"))
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadLogError(Fault(Damage.UNREADABLE, path, line, None, "one whole JSON object", str(error))) from error
    if isinstance(data, dict) and data.get("event") in EVENTS:
        return data
    expected = f'an object whose "event" is one of {", ".join(EVENTS)}'
    named = isinstance(data, dict) and "event" in data
    found = repr(data["event"]) if named else f"{type(data).__name__} without it"
    raise BadLogError(Fault(Damage.UNREADABLE, path, line, None, expected, found))


def _note(path: Path, line: int, data: dict[str, Any], text: bytes) -> None:
    """A line that is no block: it carries its own checksum, and is written in one way only."""
    event = data["event"]
    facts = {name: fact for name, fact in data.items() if name != "event"}
    if event not in SEALED:
        found = "one that follows no block"
        raise BadLogError(Fault(Damage.ALTERED_NOTE, path, line, None, f"a {event} right after its block", found))
    try:
        exact = is_sealed(event, facts) and rendered(event, facts) + b"\n" == text
    except TypeError:  # deeper than what is written can be
        exact = False
    if not exact:
        expected = f"a {event} with a seal that fits"
        raise BadLogError(Fault(Damage.ALTERED_NOTE, path, line, None, expected, repr(facts.get(SEAL))[:40]))


def _placed(path: Path, line: int, data: dict[str, Any], text: bytes) -> Placed:
    """The line's block; every field has its type and length, or it could not be hashed."""
    try:
        block = _measured(decode(data))
        return Placed(line, block, chain(block), block_line(block) + b"\n" == text)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error, OverflowError) as error:
        place = data["index"] if isinstance(data.get("index"), int) else None
        expected = f"a block: hashes of {DIGEST_BYTES} bytes, records of {RECORD.itemsize} each, births"
        found = f"{type(error).__name__}: {error}"
        raise BadLogError(Fault(Damage.UNREADABLE, path, line, place, expected, found)) from error


def _measured(block: Block) -> Block:
    """The block, if its hashes and records have lengths that they can have."""
    sizes = len(block.declaration), len(block.previous), len(block.digest)
    if len(block.records) % RECORD.itemsize or sizes != (DIGEST_BYTES,) * 3:
        raise ValueError(f"records of {len(block.records)} bytes, hashes of {sizes}")
    return block
