"""Pages as whole objects of a remote service: what Valkey, S3 and their like have in common.

It batches keys, adds and checks headers, and removes what was found damaged. A service only has to move raw
objects (`RawObjects`). An exception from it fails the batch under way; pages reported before stand. A call that
a client does not give back in time holds neither the worker nor a buffer of the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from stagehold.cache.stores.impatient import Answer, Impatient
from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout, encode_header, unpack_into
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict

BATCH_PAGES = 16
"""Pages for one round trip: enough to hide its latency, few enough to report progress and to hold in
memory.
"""


CALL_SECONDS = 30.0
"""How long a call may take where nobody said."""


class RawObjects(Protocol):
    """A service that keeps objects by name, called from several threads. It never looks at a buffer of a page."""

    name: str

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """Say for each name whether there is an object; renews nothing."""

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[bytes | memoryview | None]:
        """Return each object, None where there is none; `lengths` is what they should have.

        What is returned is good until the same thread's next call.
        """

    def send(self, names: Sequence[bytes], objects: Sequence[bytes]) -> list[Verdict]:
        """Keep each object under its name; STORED or REFUSED (no room) for each."""

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
        self._impatient = Impatient(raw.name)
        self._seconds_left: Callable[[], float] = lambda: CALL_SECONDS

    def bind(self, seconds_left: Callable[[], float]) -> None:
        """See `BoundedStore.bind`."""
        self._seconds_left = seconds_left

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`; one round trip."""
        for index, present in enumerate(self._call(lambda: self.raw.present(keys))):
            if not on_page(index, Verdict.HIT if present else Verdict.MISS):
                return

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`."""
        for batch in _batches(len(keys)):
            names = keys[batch.start : batch.stop]
            lengths = [HEADER_BYTES + len(buffers[index]) for index in batch]
            found = self._call(partial(self.raw.fetch, names, lengths))
            for index, raw in zip(batch, found, strict=True):
                if not on_page(index, self._receive(keys[index], raw, buffers[index])):
                    return

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`."""
        for batch in _batches(len(keys)):
            names, bodies = keys[batch.start : batch.stop], buffers[batch.start : batch.stop]
            objects = [
                b"".join((encode_header(name, body, self._layout), body))
                for name, body in zip(names, bodies, strict=True)
            ]
            for index, verdict in zip(batch, self._call(partial(self.raw.send, names, objects)), strict=True):
                if not on_page(index, verdict):
                    return

    def damage(self, name: bytes, length: int) -> None:
        """Flip one bit of a stored page of `length` bytes, for tests. Raises KeyError if it is not there."""
        (raw,) = self._call(lambda: self.raw.fetch([name], [HEADER_BYTES + length]))
        if raw is None:
            raise KeyError(name)
        flipped = bytearray(raw)
        flipped[-1] ^= 1
        self._call(lambda: self.raw.remove(name))  # some services keep what is there
        self._call(lambda: self.raw.send([name], [bytes(flipped)]))

    def close(self) -> None:
        """See `BlockingStore.close`. A client with a call still inside it is left open."""
        if self._impatient.close():
            self.raw.close()

    def _call(self, action: Callable[[], Answer]) -> Answer:
        return self._impatient.call(action, self._seconds_left())

    def _receive(self, name: bytes, raw: bytes | memoryview | None, out: Buffer) -> Verdict:
        if raw is None:
            return Verdict.MISS
        verdict = unpack_into(raw, out, name, self._layout)
        if verdict is not Verdict.HIT:
            self.alarms[verdict] += 1
            self._call(lambda: self.raw.remove(name))
        return verdict


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, BATCH_PAGES):
        yield range(start, min(start + BATCH_PAGES, count))
