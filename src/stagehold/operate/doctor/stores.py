"""Whether a store can be used: reached, opened, written, read back byte by byte, fast enough, with room left.

The store is asked as an engine asks it. Owns the order, in which the first thing that is wrong is the one that is
told, since what comes after it would be wrong for the same reason; and the causes that an engine's verdicts leave out.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from stagehold.cache.stores.files import default_capacity, default_floor
from stagehold.cache.stores.open import open_store, parse_url
from stagehold.cache.stores.open import size as parse_size
from stagehold.cache.stores.protocol import Buffer, Progress, Store, Verdict, WaitableStore
from stagehold.operate.doctor.check import Check, size
from stagehold.operate.settings import shown

PAGES = 16
MOST_BYTES = 256 << 20
"""Of all test pages together, but for one that is larger; the doctor holds each three times."""
SECONDS = 20.0
"""How long one call may take before the store counts as silent."""

TICK_SECONDS = 0.02
"""The longest tick that the start values of the limits assume."""

PORTS = {"valkey": 6379, "valkeys": 6379, "redis": 6379, "rediss": 6379, "mooncake": 50051}
"""Servers that are tried by a connection first, and where they listen when the URL does not say."""

CAUSES = {
    Verdict.FAILED: "the store reports an error",
    Verdict.REFUSED: "the store has no room: capacity or free-space floor",
    Verdict.TIMED_OUT: "the store did not answer within its deadline",
    Verdict.MISS: "the page is not there",
    Verdict.CORRUPT: "the checksum does not match: other bytes come back than were put",
    Verdict.TORN: "a page comes back shorter than it was put",
    Verdict.FOREIGN: "the page has another key, layout or schema than this version's",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an engine would ask of the store at most: `pages` of `page_bytes` bytes within `ticks` ticks."""

    page_bytes: int = 1 << 16
    pages: int = 0
    ticks: int = 0

    @property
    def tried(self) -> int:
        """Test pages: `PAGES`, or as many as `MOST_BYTES` are."""
        return max(1, min(PAGES, MOST_BYTES // self.page_bytes))


def look(url: str, wanted: Wanted) -> Iterator[Check]:
    """All checks of the store at `url`, up to the first that fails; no password is told."""
    for check in _look(url, wanted):
        yield replace(check, detail=check.detail.replace(url, shown(url) or ""))


def _look(url: str, wanted: Wanted) -> Iterator[Check]:
    try:
        parsed = parse_url(url, wanted.page_bytes)
        target = _server(parsed.scheme, parsed.host, dict(parsed.options))
    except ValueError as error:
        yield Check("store URL", ok=False, detail=str(error), fix="see docs/stores.md for the URLs that there are")
        return
    if target is not None:
        reached = _reached(*target)
        yield reached
        if not reached.ok:
            return
    if parsed.scheme == "file":
        room = _disk(Path(parsed.path), dict(parsed.options), wanted)
        yield room
        if not room.ok:
            return
    yield from _opened(url, wanted)


def _opened(url: str, wanted: Wanted) -> Iterator[Check]:
    try:
        store = open_store(url, wanted.page_bytes)
    except OSError as error:
        where = error.filename or url
        fix = f"let this user write to {where}, or name another directory"
        yield Check("store opens", ok=False, detail=f"{where}: {error.strerror or error}", fix=fix)
        return
    except ValueError as error:
        fix = "correct the URL, see docs/stores.md; a directory is for one size of page (page_bytes, --page-bytes)"
        yield Check("store opens", ok=False, detail=str(error), fix=fix)
        return
    try:
        yield Check("store opens", ok=True, detail=f"{store.name}, pages of {size(wanted.page_bytes)}")
        yield from _used(store, wanted)
    finally:
        store.close()


# Before it is opened


def _server(scheme: str, host: str, options: dict[str, str]) -> tuple[str, int] | None:
    """Name and port of the server behind a URL, if it names one. ValueError where it names none that can be."""
    target = urlsplit(options.get("endpoint", "")).netloc if scheme == "s3" else host if scheme in PORTS else ""
    if not target:
        return None
    address = urlsplit(f"//{target}")
    try:
        return address.hostname or "localhost", address.port or PORTS.get(scheme, 443)
    except ValueError as error:
        raise ValueError("the port is no number from 0 to 65535; in a password, write / ? # as %2F %3F %23") from error


def _reached(name: str, port: int) -> Check:
    """One connection to the server, since a client that cannot connect only says that it failed."""
    try:
        socket.create_connection((name, port), timeout=5).close()
    except OSError as error:
        told = error.strerror or str(error) or type(error).__name__
        fix = f"start the server, or correct host and port in the URL; try: nc -z {name} {port}"
        return Check("store server", ok=False, detail=f"{name}:{port}: {told}", fix=fix)
    return Check("store server", ok=True, detail=f"{name}:{port} takes connections")


def _disk(folder: Path, options: dict[str, str], wanted: Wanted) -> Check:
    """Whether the disk has what the store may take, beside the floor that it leaves free."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        most, floor = (parse_size(options[name]) if name in options else None for name in ("capacity", "floor"))
    except ValueError as error:
        return Check("store disk", ok=False, detail=str(error), fix="write a size as 10GiB")
    status = os.statvfs(there)
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    most, floor = most or default_capacity(there), floor if floor is not None else default_floor(there)
    told = f"{size(free)} free of {size(total)} at {there}; capacity {size(most)}, floor {size(floor)}"
    if free <= floor:
        fix = f"free {size(floor - free + wanted.page_bytes)}, or lower floor in the URL: below it nothing is written"
        return Check("store disk", ok=False, detail=told, fix=fix)
    if most + floor > total:
        fix = f"set capacity in the URL to {size(max(0, total - floor))} or less: the disk has no more beside its floor"
        return Check("store disk", ok=False, detail=told, fix=fix)
    note = "" if free - floor >= most else f"others use this disk: only {size(free - floor)} can be written now"
    return Check("store disk", ok=True, detail=told, fix=note)


# As an engine asks


class _Asked:
    """A store with one call in flight at a time; `seconds` is how long the last one took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ticket = 0
        self._tick = 0
        self.seconds = 0.0

    def ask(self, call: Callable[..., None], *given: Sequence[bytes] | Sequence[Buffer]) -> Progress | None:
        """The end of the call, or None where it did not end in time."""
        self._ticket += 1
        begun = time.perf_counter()
        call(self._ticket, *given, self._tick)
        while (taken := time.perf_counter() - begun) < SECONDS:
            if isinstance(self._store, WaitableStore):
                self._store.wait(0.05)
            self._tick += 1
            for progress in self._store.poll(self._tick):
                if progress.ticket == self._ticket and progress.done:
                    self.seconds = time.perf_counter() - begun
                    return progress
        self.seconds = taken
        return None


def _used(store: Store, wanted: Wanted) -> Iterator[Check]:
    asked = _Asked(store)
    names = [secrets.token_bytes(48) for _ in range(wanted.tried)]
    put = [secrets.token_bytes(wanted.page_bytes) for _ in names]
    written = asked.ask(store.put, names, [memoryview(bytearray(page)) for page in put])
    write_seconds = asked.seconds
    yield _ended("store writes", written, Verdict.STORED, "check permissions, room and the server's own log")
    if written is None or written.good < len(names):
        return
    found = asked.ask(store.exists, names)
    yield _ended("store finds", found, Verdict.HIT, "the store forgets what it acknowledged: raise its capacity")
    strange = asked.ask(store.exists, [secrets.token_bytes(48)])
    lies = strange is None or strange.verdicts[:1] == (Verdict.HIT,)
    yield Check("store knows what it has not", ok=not lies, detail="a page that nobody put is " +
                ("said to be there" if lies else "not there"),
                fix="do not use this store: it finds what does not exist" if lies else "")  # fmt: skip
    buffers = [bytearray(wanted.page_bytes) for _ in names]
    read = asked.ask(store.get_into, names, [memoryview(buffer) for buffer in buffers])
    read_seconds = asked.seconds
    yield _ended(
        "store reads", read, Verdict.HIT, "the store does not give back what it took; see `stagehold store verify`"
    )
    if read is None or read.good < len(names):
        return
    wrong = sum(bytes(buffer) != page for buffer, page in zip(buffers, put, strict=True))
    told = f"{wrong} of {len(put)} pages came back with other bytes" if wrong else f"{len(put)} pages came back as put"
    fix = "do not use this store: it calls wrong bytes right; test its memory, its cache and its proxy" if wrong else ""
    yield Check("store bytes", ok=not wrong, detail=told, fix=fix)
    yield _fast(wanted, read_seconds, write_seconds)


def _ended(name: str, ended: Progress | None, right: Verdict, fix: str) -> Check:
    if ended is None:
        silent = "raise the deadline only if it is known to be slow; else look at the server"
        return Check(name, ok=False, detail=f"no answer in {SECONDS:g} s", fix=silent)
    wrong = next((verdict for verdict in ended.verdicts if verdict is not right), None)
    if wrong is None:
        return Check(name, ok=True, detail=f"{ended.good} pages")
    told = CAUSES.get(wrong, wrong.name.lower())
    return Check(name, ok=False, detail=f"{ended.good} of {len(ended.verdicts)} pages; {wrong.name}: {told}", fix=fix)


def _fast(wanted: Wanted, read_seconds: float, write_seconds: float) -> Check:
    """Against the longest fetch that an engine would send, and how long it would wait for that."""
    count = wanted.tried * wanted.page_bytes
    read, write = count / max(read_seconds, 1e-9), count / max(write_seconds, 1e-9)
    told = f"read {size(read)} a second, written {size(write)} a second, {size(count)} each"
    if not wanted.pages:
        return Check("store bandwidth", ok=True, detail=told)
    need, limit = wanted.pages * wanted.page_bytes / read, wanted.ticks * TICK_SECONDS
    told += f"; the largest fetch, {wanted.pages} pages, takes {need:.2f} s of {limit:.2f} s ({wanted.ticks} ticks)"
    fix = (
        f"raise limits.fetch_limit to {int(need / TICK_SECONDS) + 1}, or lower load_limit_fraction, or take a faster "
        "store: fetches would be cut"
    )
    return Check("store bandwidth", ok=need <= limit, detail=told, fix="" if need <= limit else fix)
