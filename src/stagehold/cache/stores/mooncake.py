"""Pages in a Mooncake Store, through its own package, over TCP or RDMA.

Objects pass through a registered arena of each worker thread: a call that the service does not give back in
time holds that arena, and never a buffer of the caller. (A process that exits while a call still hangs may be
ended by a fault in the client's own clean-up.) Its leases end by time, so a payload can be reclaimed while it is
read; the page checksum tells.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stagehold.cache.stores.objects import BATCH_PAGES, ObjectStore
from stagehold.cache.stores.open import RUNNING, StoreUrl, StoreUrlError, need, run_on_workers, size, text
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Buffer, Store, Verdict

DEADLINE_SECONDS = 10.0
LOCAL_BUFFER_BYTES = 64 << 20
NO_ROOM = -200
ABSENT = frozenset({-703, -704})
"""Result codes of the service that are not errors here: no space to be had, and an object that is still being
written or not there. Every other negative code is an error."""


class MooncakeError(RuntimeError):
    """A call that the service answered with an error code."""


class Arena:
    """Registered memory of one thread, handed out from the start for each batch."""

    def __init__(self, service: Any, capacity_bytes: int) -> None:
        self.memory = (ctypes.c_char * capacity_bytes)()
        self.view = memoryview(self.memory).cast("B")
        self._address = ctypes.addressof(self.memory)
        self._service = service
        _check(service.register_buffer(self._address, capacity_bytes), "register_buffer")

    def slots(self, lengths: Sequence[int]) -> list[tuple[int, Buffer]]:
        """Return address and view of consecutive pieces of these lengths, which must fit together."""
        pieces, start = [], 0
        for length in lengths:
            pieces.append((self._address + start, self.view[start : start + length]))
            start += length
        return pieces

    def close(self) -> None:
        """Take the memory back from the service."""
        self._service.unregister_buffer(self._address)


class MooncakeObjects:
    """`RawObjects` over one client of the service; `page_bytes` sizes the first arena of each thread."""

    name = "mooncake"

    def __init__(self, service: Any, page_bytes: int) -> None:
        self._service = service
        self._first_bytes = BATCH_PAGES * (HEADER_BYTES + page_bytes)
        self._mine = threading.local()
        self._arenas: list[Arena] = []

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """See `RawObjects.present`."""
        found = self._service.batch_is_exist([name.hex() for name in names]) if names else []
        return [_check(code, "batch_is_exist") == 1 for code in found]

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[memoryview | None]:
        """See `RawObjects.fetch`."""
        slots = self._arena(sum(lengths)).slots(lengths)
        addresses = [address for address, _ in slots]
        codes = self._service.batch_get_into([name.hex() for name in names], addresses, list(lengths))
        self._forsake_if_failed(codes)
        return [
            None if code in ABSENT else view[: _check(code, "batch_get_into")]
            for code, (_, view) in zip(codes, slots, strict=True)
        ]

    def send(self, names: Sequence[bytes], objects: Sequence[bytes]) -> list[Verdict]:
        """See `RawObjects.send`. A name that exists keeps its object, which is the same page."""
        lengths = [len(whole) for whole in objects]
        slots = self._arena(sum(lengths)).slots(lengths)
        for (_, view), whole in zip(slots, objects, strict=True):
            view[:] = whole
        addresses = [address for address, _ in slots]
        codes = self._service.batch_put_from([name.hex() for name in names], addresses, lengths)
        self._forsake_if_failed(codes)
        return [
            Verdict.REFUSED if code == NO_ROOM or _check(code, "batch_put_from") else Verdict.STORED for code in codes
        ]

    def remove(self, name: bytes) -> None:
        """See `RawObjects.remove`; by force, since a damaged page may be under a lease."""
        self._service.remove(name.hex(), True)

    def close(self) -> None:
        """See `RawObjects.close`."""
        for arena in self._arenas:
            arena.close()
        self._service.close()

    def _forsake_if_failed(self, codes: Sequence[int]) -> None:
        """Use no arena again in which a failed transfer may still be writing; it is kept until the close."""
        if any(code < 0 and code != NO_ROOM and code not in ABSENT for code in codes):
            self._mine.arena = None

    def _arena(self, least_bytes: int) -> Arena:
        """Return this thread's arena, a larger one where it has to be."""
        arena: Arena | None = getattr(self._mine, "arena", None)
        if arena is None or len(arena.view) < least_bytes:
            arena = self._mine.arena = Arena(self._service, max(least_bytes, self._first_bytes))
            self._arenas.append(arena)
        return arena


def _check(code: int, call: str) -> int:
    if code < 0:
        raise MooncakeError(f"{call}: error code {code}")
    return int(code)


def open_mooncake(url: StoreUrl) -> Store:
    """Open `mooncake://master-host:port`.

    Options: `local` (this client's host name or host:port, `127.0.0.1`), `metadata` (`P2PHANDSHAKE`),
    `protocol` (`tcp` or `rdma`), `devices`, `segment` (bytes that this client adds to the pool, 0),
    `workers`, `deadline` (10 seconds). Connects at once. Keep the time of a batch well under the lease of
    the master.
    """
    parsers: dict[str, Callable[[str], Any]] = dict.fromkeys(("local", "metadata", "protocol", "devices"), text)
    options = url.read(segment=size, **parsers, **RUNNING)
    options.setdefault("deadline", DEADLINE_SECONDS)
    if not url.host:
        raise StoreUrlError(f"{url.text}: expected the master, as in mooncake://127.0.0.1:50051")
    package = need("mooncake.store", url, extra="mooncake")
    service = package.MooncakeDistributedStore()
    code = service.setup(
        options.get("local", "127.0.0.1"),
        options.get("metadata", "P2PHANDSHAKE"),
        options.get("segment", 0),
        LOCAL_BUFFER_BYTES,
        options.get("protocol", "tcp"),
        options.get("devices", ""),
        url.host,
    )
    _check(code, f"setup with the master at {url.host}")
    return run_on_workers(ObjectStore(MooncakeObjects(service, url.page_bytes), layout=url.layout), options)
