"""The one reader of audit logs: lines to blocks, and what may be wrong with either.

Owns the names of all damage that the readers tell apart, and where it stands. It holds a few blocks at a time
and judges only whether a line is a whole block; chain and rows are judged by `audit_check`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stagehold.machines.records import DIGEST_BYTES, RECORD, Block, chain, decode

BATCH = 1 << 16
"""Enough records to make numpy pay, few enough to hold in memory."""


class Damage(Enum):
    """What can be wrong with a log; the value says it in words."""

    TRUNCATED = "the log ends too early"
    UNREADABLE = "not a line of an audit log"
    ALTERED = "the block is not what was written"
    FOREIGN = "written by other declarations"
    MISSING_BLOCK = "a block is missing"
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
    """A block, the number of its line from 1, and the digest that its content must have."""

    line: int
    block: Block
    computed: bytes


def blocks(path: Path) -> Iterator[Placed]:
    """The blocks of the log at `path`, in order; lines of other events are passed over.

    Raises `BadLogError` at the first line that is no whole line of a log; OSError where there is no file.
    """
    with path.open("rb") as file:
        for line, text in enumerate(file, start=1):
            data = _parsed(path, line, text)
            if data["event"] == "block":
                yield _placed(path, line, data)


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


def _parsed(path: Path, line: int, text: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        torn = not text.endswith(b"\n")
        damage = Damage.TRUNCATED if torn else Damage.UNREADABLE
        found = f"{len(text)} bytes without an end of line" if torn else str(error)
        raise BadLogError(Fault(damage, path, line, None, "one whole JSON object", found)) from error
    if not isinstance(data, dict) or not isinstance(data.get("event"), str):
        found = f"{type(data).__name__} without it"
        raise BadLogError(Fault(Damage.UNREADABLE, path, line, None, 'an object with "event"', found))
    return data


def _placed(path: Path, line: int, data: dict[str, Any]) -> Placed:
    """The line's block; every field has its type and length, or it could not be hashed."""
    try:
        block = decode(data)
        return Placed(line, _measured(block), chain(block))
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
