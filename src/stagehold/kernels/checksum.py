"""The page checksum: xxh3_128 over a prefix and a body, without copying either.

It detects damage and mix-ups. It is not collision resistant and is never used for keys.
"""

from __future__ import annotations

import xxhash

CHECKSUM_BYTES = 16


def checksum(prefix: bytes | bytearray | memoryview, body: bytes | bytearray | memoryview) -> bytes:
    """Return the 16-byte checksum of `prefix` followed by `body` (any alignment, zero length allowed)."""
    state = xxhash.xxh3_128(prefix)
    state.update(body)
    return state.digest()
