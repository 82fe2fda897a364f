"""The page object: what every store keeps for one page, a fixed header and the body behind it.

The header names the page (object name, component, rank coordinates, body length) and carries a checksum over
all of that and the body, so that damaged bytes, and right bytes in the wrong place, are told from the page
that was asked for. This module encodes and verifies; it never reads or writes a store and never copies a
body.

Layout, little-endian, 256 bytes: magic 8, schema u16, name length u16, component u16, tensor rank and size
u16 each, pipeline rank and size u16 each, body length u64, name 64, zeros, checksum 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from stagehold.cache.stores.protocol import Buffer, Verdict
from stagehold.kernels.checksum import CHECKSUM_BYTES, checksum, checksum_of

MAGIC = b"STGHOLDP"
SCHEMA = 1
HEADER_BYTES = 256
"""One header; small beside a page, and a multiple of every cache line."""
NAME_BYTES_MAX = 64

_FIELDS = struct.Struct("<8sHHHHHHHQ64s")
_SIGNED_BYTES = HEADER_BYTES - CHECKSUM_BYTES
_PADDING = bytes(_SIGNED_BYTES - _FIELDS.size)


@dataclass(frozen=True, slots=True)
class Layout:
    """What else decides the bytes of a page besides its name: component number and rank coordinates."""

    component: int = 0
    tensor_rank: int = 0
    tensor_size: int = 1
    pipeline_rank: int = 0
    pipeline_size: int = 1

    def numbers(self) -> tuple[int, int, int, int, int]:
        """Return the five fields in header order."""
        return (self.component, self.tensor_rank, self.tensor_size, self.pipeline_rank, self.pipeline_size)


WHOLE = Layout()
"""One component, one rank."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a header says about its page; read by tools, never trusted before `verify`."""

    name: bytes
    body_bytes: int
    layout: Layout


def encode_header(name: bytes, body: Buffer | bytes, layout: Layout = WHOLE) -> bytes:
    """Return the 256-byte header for `body`. Raises ValueError for a name of no or more than 64 bytes."""
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise ValueError(f"object name of {len(name)} bytes: expected 1 to {NAME_BYTES_MAX}")
    signed = _FIELDS.pack(MAGIC, SCHEMA, len(name), *layout.numbers(), len(body), name) + _PADDING
    return signed + checksum(signed, body)


def read_identity(header: bytes | bytearray | memoryview) -> Identity | None:
    """Return what a header claims to describe, None where it is not a header of this schema."""
    if len(header) < HEADER_BYTES:
        return None
    magic, schema, name_bytes, *numbers, body_bytes, name = _FIELDS.unpack_from(header)
    if magic != MAGIC or schema != SCHEMA or name_bytes > NAME_BYTES_MAX:
        return None
    return Identity(name[:name_bytes], body_bytes, Layout(*numbers))


def verify(
    header: bytes | bytearray | memoryview,
    body: Buffer,
    name: bytes,
    expected_bytes: int,
    layout: Layout = WHOLE,
) -> Verdict:
    """Say whether `header` and `body`, as they were received, are the page `name` of `expected_bytes` bytes.

    `header` and `body` hold only what arrived and may be shorter than they should be (TORN). HIT is the only
    answer after which the body may be used.
    """
    if len(header) < HEADER_BYTES or not any(header[: len(MAGIC)]):
        return Verdict.TORN  # some file systems give back zeros of the right length after a power loss
    if read_identity(header) != Identity(name, expected_bytes, layout):
        return Verdict.FOREIGN
    if len(body) < expected_bytes:
        return Verdict.TORN
    signed = memoryview(header)
    if checksum(signed[:_SIGNED_BYTES], body[:expected_bytes]) != signed[_SIGNED_BYTES:HEADER_BYTES]:
        return Verdict.CORRUPT
    return Verdict.HIT


def verify_pieces(header: bytes, pieces: Iterable[bytes], there: int, name: bytes) -> Verdict:
    """Say whether a page that nobody asked for is what its own header claims, with `there` bytes behind the header.

    For tools: the body comes in pieces, which are read only where the header can be right.
    """
    identity = read_identity(header)
    if identity is None or identity.name != name:
        return verify(header, memoryview(b""), name, 0)
    if there < identity.body_bytes:
        return Verdict.TORN
    right = checksum_of(header[:_SIGNED_BYTES], pieces) == header[_SIGNED_BYTES:HEADER_BYTES]
    return Verdict.HIT if right else Verdict.CORRUPT


def unpack_into(raw: bytes | memoryview, out: Buffer, name: bytes, layout: Layout = WHOLE) -> Verdict:
    """Copy the body of a whole page object into `out` and verify what is there then."""
    whole = memoryview(raw)
    body = whole[HEADER_BYTES : HEADER_BYTES + len(out)]
    out[: len(body)] = body
    return verify(whole[:HEADER_BYTES], out[: len(body)], name, len(out), layout)


def verify_received(header: bytearray, body: Buffer, name: bytes, received: int, layout: Layout = WHOLE) -> Verdict:
    """`verify` for a vectored read that filled `header` and then `body` with `received` bytes in all."""
    if received < HEADER_BYTES:
        return Verdict.TORN
    return verify(header, body[: received - HEADER_BYTES], name, len(body), layout)
