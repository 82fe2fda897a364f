"""Pages as whole objects of a remote service: what Valkey, S3 and their like have in common.

It batches keys, adds and checks headers, and removes what was found damaged. A service only has to move raw
objects (`RawObjects`). An exception from it fails the batch under way; pages reported before stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout, encode_header, unpack_into
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict

BATCH_PAGES = 16
"""Pages for one round trip: enough to hide its latency, few enough to report progress and to hold in
memory.
"""


class RawObjects(Protocol):
    """A service that keeps objects by name, called from several threads."""

    name: str

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """Say for each name whether there is an object; renews nothing."""

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[bytes | memoryview | None]:
        """Return each object, None where there is none; `lengths` is what they should have.

        What is returned is good until the same thread's next call.
        """

    def send(self, names: Sequence[bytes], headers: Sequence[bytes], bodies: Sequence[Buffer]) -> list[Verdict]:
        """Keep header + body under each name; STORED or REFUSED (no room) for each."""

    def remove(self, name: bytes) -> None:
        """Remove an object, if it is there."""

    def close(self) -> None:
        """Give back the connections."""


class ObjectStore:
    """A `BlockingStore` over `RawObjects`. Damaged pages are counted in `alarms` by their verdict."""

    def __init__(self, raw: RawObjects, *, layout: Layout = WHOLE) -> None:
        self.name = raw.name
        self.raw = raw
        self.alarms: Counter[Verdict] = Counter()
        self._layout = layout

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`; one round trip."""
        for index, present in enumerate(self.raw.present(keys)):
            if not on_page(index, Verdict.HIT if present else Verdict.MISS):
                return

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`."""
        for batch in _batches(len(keys)):
            names = keys[batch.start : batch.stop]
            lengths = [HEADER_BYTES + len(buffers[index]) for index in batch]
            for index, raw in zip(batch, self.raw.fetch(names, lengths), strict=True):
                if not on_page(index, self._receive(keys[index], raw, buffers[index])):
                    return

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`."""
        for batch in _batches(len(keys)):
            names, bodies = keys[batch.start : batch.stop], buffers[batch.start : batch.stop]
            headers = [encode_header(name, body, self._layout) for name, body in zip(names, bodies, strict=True)]
            for index, verdict in zip(batch, self.raw.send(names, headers, bodies), strict=True):
                if not on_page(index, verdict):
                    return

    def damage(self, name: bytes, length: int) -> None:
        """Flip one bit of a stored page of `length` bytes, for tests. Raises KeyError if it is not there."""
        (raw,) = self.raw.fetch([name], [HEADER_BYTES + length])
        if raw is None:
            raise KeyError(name)
        flipped = bytearray(raw)
        flipped[-1] ^= 1
        self.raw.remove(name)  # some services keep what is there
        self.raw.send([name], [b""], [memoryview(flipped)])

    def close(self) -> None:
        """See `BlockingStore.close`."""
        self.raw.close()

    def _receive(self, name: bytes, raw: bytes | memoryview | None, out: Buffer) -> Verdict:
        if raw is None:
            return Verdict.MISS
        verdict = unpack_into(raw, out, name, self._layout)
        if verdict is not Verdict.HIT:
            self.alarms[verdict] += 1
            self.raw.remove(name)
        return verdict


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, BATCH_PAGES):
        yield range(start, min(start + BATCH_PAGES, count))
