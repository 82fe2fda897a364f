"""Fast hashes of bytes in memory: the page checksum, and spreading names over shards.

xxh3 detects damage and mix-ups. It is not collision resistant and is never used for keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

CHECKSUM_BYTES = 16


def checksum(prefix: bytes | bytearray | memoryview, body: bytes | bytearray | memoryview) -> bytes:
    """Return the 16-byte checksum of `prefix` followed by `body` (any alignment, zero length allowed)."""
    state = xxhash.xxh3_128(prefix)
    state.update(body)
    return state.digest()


def checksum_of(prefix: bytes | bytearray | memoryview, pieces: Iterable[bytes]) -> bytes:
    """Return the same of a body that comes in pieces."""
    state = xxhash.xxh3_128(prefix)
    for piece in pieces:
        state.update(piece)
    return state.digest()


def spread(name: bytes) -> int:
    """Return 64 evenly spread bits for `name`, the same in every process and on every machine."""
    return xxhash.xxh3_64_intdigest(name)
