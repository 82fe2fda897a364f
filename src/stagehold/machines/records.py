"""What an audit log consists of: the record, births, blocks, and their replay.

Owns the layout, which is final. It writes nothing (`journal` collects, `logs` renders) and never looks at a
live machine: everything here works from blocks alone.

One record is 16 bytes, little-endian:

    instance  u32   number given at birth, unique in one engine
    row       u16   machine index << 8 | index of the row in `spec.expanded()`; low byte 0xFF: a refused event
    flags     u16   0 taken, 1 refused
    detail    u64   what the effect returned, read by the row's `Books`;
                    of a refused event: state << 8 | index of the event in `spec.events()`
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stagehold.machines.declared import MACHINES, declaration_hash, rows_of
from stagehold.specs.declare import Books, Kind, MachineSpec
from stagehold.specs.outcomes import Loss

RECORD = np.dtype([("instance", "<u4"), ("row", "<u2"), ("flags", "<u2"), ("detail", "<u8")])
REFUSED_ROW = 0xFF
REFUSED_FLAG = 1
DIGEST_BYTES = 16

_HEADER = Struct("<16s16sQQII")
_BIRTH = Struct("<IBBBx")
_REST = Struct("<HHQ")
_LENGTH, _NUMBER, _NUMBERS = Struct("<I"), Struct("<Iq"), Struct("<IqIq")


@dataclass(frozen=True, slots=True)
class HandleKey:
    """Who a request is. The engine's own machines (store, attachment, tick) use their name and attempt 0."""

    rid: str
    attempt: int
    namespace: bytes


@dataclass(frozen=True, slots=True)
class SpanKey:
    """What a hold or a write carries: pages [first, last] of the chain that ends in `last_key`."""

    namespace: bytes
    last_key: bytes
    first: int
    last: int


BirthKey = HandleKey | SpanKey


@dataclass(frozen=True, slots=True)
class Birth:
    """An instance came to be: its number, machine index, first state (as a number) and key."""

    number: int
    machine: int
    state: int
    key: BirthKey


@dataclass(frozen=True, slots=True)
class Block:
    """One tick of the audit. `records` is a multiple of 16 bytes; the three hashes are 16 bytes each."""

    index: int
    tick: int
    declaration: bytes
    previous: bytes
    births: tuple[Birth, ...]
    records: bytes
    digest: bytes

    def table(self) -> NDArray[np.void]:
        """The records as a read-only array of dtype `RECORD`, shape (n,)."""
        return np.frombuffer(self.records, dtype=RECORD)

    def expected_digest(self) -> bytes:
        """The digest that this content must have; it differs from `digest` where something was altered."""
        return chain(self)


def tag(instance: int) -> bytes:
    """The first four bytes of a record: made once per instance, at its birth."""
    return instance.to_bytes(4, "little")


def rest(machine: int, row: int, flags: int = 0, detail: int = 0) -> bytes:
    """The other twelve bytes: made once per row where the detail is 0."""
    return _REST.pack(machine << 8 | row, flags, detail)


def chain(block: Block) -> bytes:
    """blake2b-16 over header (declaration, previous, index, tick, counts), births and records."""
    return chain_digest((block.declaration, block.previous, block.index, block.tick), block.births, block.records)


def chain_digest(header: tuple[bytes, bytes, int, int], births: Sequence[Birth], records: bytes) -> bytes:
    """The digest of a block that is not built yet; `header` is (declaration, previous, index, tick)."""
    content = _HEADER.pack(*header, len(births), len(records))
    if births:
        content += b"".join(map(birth_bytes, births))
    return blake2b(content + records, digest_size=DIGEST_BYTES).digest()


def birth_bytes(birth: Birth) -> bytes:
    """A birth as it is hashed: fixed fields, then each field of the key with its length (u32) before it."""
    key = birth.key
    fixed = _BIRTH.pack(birth.number, birth.machine, birth.state, isinstance(key, SpanKey))
    space = _LENGTH.pack(len(key.namespace)) + key.namespace
    if isinstance(key, HandleKey):
        rid = key.rid.encode("utf-8", "surrogatepass")
        return b"".join((fixed, _LENGTH.pack(len(rid)), rid, _NUMBER.pack(8, key.attempt), space))
    pages = _NUMBERS.pack(8, key.first, 8, key.last)
    return b"".join((fixed, space, _LENGTH.pack(len(key.last_key)), key.last_key, pages))


def encode(block: Block) -> dict[str, Any]:
    """A block as plain data for JSON: hashes and keys in hex, records in base64."""
    return {
        "index": block.index,
        "tick": block.tick,
        "declaration": block.declaration.hex(),
        "previous": block.previous.hex(),
        "births": [_encode_birth(birth) for birth in block.births],
        "records": b64encode(block.records).decode(),
        "digest": block.digest.hex(),
    }


def decode(data: dict[str, Any]) -> Block:
    """The block that `encode` gave as `data`; KeyError, TypeError or ValueError for anything else."""
    return Block(
        index=data["index"],
        tick=data["tick"],
        declaration=bytes.fromhex(data["declaration"]),
        previous=bytes.fromhex(data["previous"]),
        births=tuple(_decode_birth(birth) for birth in data["births"]),
        records=b64decode(data["records"], validate=True),
        digest=bytes.fromhex(data["digest"]),
    )


def _encode_birth(birth: Birth) -> list[Any]:
    key = birth.key
    if isinstance(key, HandleKey):
        named: dict[str, Any] = {"rid": key.rid, "attempt": key.attempt, "namespace": key.namespace.hex()}
    else:
        named = {
            "namespace": key.namespace.hex(),
            "last_key": key.last_key.hex(),
            "first": key.first,
            "last": key.last,
        }
    return [birth.number, birth.machine, birth.state, named]


def _decode_birth(data: list[Any]) -> Birth:
    number, machine, state, named = data
    namespace = bytes.fromhex(named["namespace"])
    key: BirthKey
    if "rid" in named:
        key = HandleKey(named["rid"], named["attempt"], namespace)
    else:
        key = SpanKey(namespace, bytes.fromhex(named["last_key"]), named["first"], named["last"])
    return Birth(number, machine, state, key)


class LogError(ValueError):
    """A log that these declarations cannot have written; the message names the block or the record."""


class ForeignDeclarationError(LogError):
    """Written by other declarations."""


class IllegalRowError(LogError):
    """A record that names no row, no event or no known instance, or a birth that cannot be."""


class DiscontinuityError(LogError):
    """A row taken from another state than the instance was in."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where one instance stands: its machine's name, its state, its counters by name."""

    machine: str
    state: IntEnum
    counters: dict[str, int]


@dataclass(slots=True)
class Totals:
    """Tokens that the rows booked since the start, losses by their end, and how many events were refused."""

    queried: int = 0
    spliced: int = 0
    losses: dict[Loss, int] = field(default_factory=lambda: dict.fromkeys(Loss, 0))
    refused: int = 0

    def book(self, books: Books, detail: int) -> None:
        """Enter one record's detail; ValueError where its loss number is no member of `Loss`."""
        low, high = detail & 0xFFFFFFFF, detail >> 32
        if books is Books.QUERIED:
            self.queried += low
        elif books is Books.SPLICED:
            self.spliced += low
            self.losses[Loss.COVERED] += high
        elif books is Books.LOSS:
            self.losses[Loss(high)] += low

    @property
    def open(self) -> int:
        """Tokens of claims that have not ended: queried, and neither spliced nor lost."""
        return self.queried - self.spliced - sum(self.losses.values())


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a log amounts to: every instance ever born, the token totals, the digest of the last block."""

    instances: dict[int, Situation]
    totals: Totals
    digest: bytes


def replay(blocks: Iterable[Block], machines: tuple[MachineSpec, ...] = MACHINES) -> Replayed:
    """Rebuild states, counters and totals from blocks alone, in order; LogError at the first thing not legal.

    The chain is not looked at here: `Block.expected_digest` and `Block.previous` serve those who verify it.
    """
    instances: dict[int, Situation] = {}
    totals = Totals()
    digest = bytes(DIGEST_BYTES)
    for block in blocks:
        if block.declaration != declaration_hash(machines):
            raise ForeignDeclarationError(
                f"block {block.index} was written by declarations {block.declaration.hex()}, "
                f"these are {declaration_hash(machines).hex()}"
            )
        for birth in block.births:
            _enter(instances, birth, machines)
        for record in block.table().tolist():
            _apply(instances, totals, record, machines)
        digest = block.digest
    return Replayed(instances, totals, digest)


def _enter(instances: dict[int, Situation], birth: Birth, machines: tuple[MachineSpec, ...]) -> None:
    spec = machines[birth.machine] if birth.machine < len(machines) else None
    if spec is None or birth.number in instances or birth.state not in (spec.initial, *spec.births):
        raise IllegalRowError(f"{birth} cannot be: unknown machine, number given before, or not a birth state")
    counters = dict.fromkeys(spec.counters, 0)
    instances[birth.number] = Situation(spec.name, type(spec.initial)(birth.state), counters)


def _may_have_moved(spec: MachineSpec, state: IntEnum) -> bool:
    """Whether rows that leave no record can have led on from `state`."""
    return spec.sparse and spec.state(state).kind is not Kind.TERMINAL


def _apply(
    instances: dict[int, Situation],
    totals: Totals,
    record: tuple[int, int, int, int],
    machines: tuple[MachineSpec, ...],
) -> None:
    number, word, flags, detail = record
    machine, index = word >> 8, word & 0xFF
    here = instances.get(number)
    if here is None or machine >= len(machines) or machines[machine].name != here.machine:
        raise IllegalRowError(f"record {record}: instance {number} of machine {machine} was never born")
    if flags & REFUSED_FLAG:
        totals.refused += 1
        return
    rows = rows_of(machines[machine])
    if index >= len(rows):
        raise IllegalRowError(f"record {record}: machine {here.machine!r} has no row {index}")
    row = rows[index]
    if row.source is not here.state and not _may_have_moved(machines[machine], here.state):
        raise DiscontinuityError(
            f"record {record}: row {index} of machine {here.machine!r} leaves {row.source!r}, "
            f"but instance {number} is in {here.state!r}"
        )
    counters = here.counters
    if row.counts is not None:
        counters[row.counts] += 1
    instances[number] = Situation(here.machine, row.target, counters)
    totals.book(row.books, detail)
