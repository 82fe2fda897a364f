"""The packed file store: many small pages in a few large files, for pages below about 512 KiB.

It saves the file creation and the rename that a small page costs in the plain file store. Each handle
writes its own segments and reads those of all; a segment whose owner is gone is taken over. Capacity is
kept over all processes, in whole segments, and free space is taken when a segment is made. Where there is no
more, a handle with fewer segments than another takes one of its away, so that all have their part. Recency is kept
in memory: after a start, pages go in the order of their slots. All segments of a directory have slots of one
size: those of another size would take the capacity and never be used again.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.files import FULL, default_capacity, default_floor
from stagehold.cache.stores.folder import refuse_other_form
from stagehold.cache.stores.ledger import SizeLedger
from stagehold.cache.stores.owners import Owners
from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout, encode_header, verify_received
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict
from stagehold.cache.stores.segment import ALIGN_BYTES, Segment, segment_bytes, segment_paths, settled, slot_size

SEGMENT_BYTES = 64 << 20
"""Large enough that making one is rare, small enough that a capacity is used up to the last few percent."""
SEGMENTS_IN_CAPACITY = 8
"""A capacity is cut into at least so many segments unless told otherwise, so that several handles can have one each."""
GROW_EVERY = 64
"""Evictions from one look for more room to the next: the look costs more than writing a page."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page is."""

    segment: Segment
    slot: int


class PackedStore:
    """A `BlockingStore` over a directory, for bodies of up to `page_bytes` bytes; longer ones are REFUSED.

    `capacity_bytes` and `floor_bytes` as in the file store; a capacity is cut into at least `segments`, one for each
    handle that is to write. Raises ValueError for a capacity without room for a segment of one page, and for a
    directory with page files or with slots of another size.
    """

    name = "packed"

    def __init__(
        self,
        root: str | os.PathLike[str],
        page_bytes: int,
        *,
        capacity_bytes: int | None = None,
        floor_bytes: int | None = None,
        layout: Layout = WHOLE,
        segments: int = SEGMENTS_IN_CAPACITY,
    ) -> None:
        self.alarms: Counter[Verdict] = Counter()
        self.evicted_pages = 0
        self._slot_bytes = max(ALIGN_BYTES, -(-page_bytes // ALIGN_BYTES) * ALIGN_BYTES)
        self._layout = layout
        self._folder = Path(root).absolute() / "segments"
        _refuse_other_pages(self._folder, page_bytes, self._slot_bytes)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._capacity_bytes = default_capacity(self._folder) if capacity_bytes is None else capacity_bytes
        self._slots = _slots(self._slot_bytes, self._capacity_bytes, segments)
        self._floor_bytes = default_floor(self._folder) if floor_bytes is None else floor_bytes
        self._ledger = SizeLedger(self._folder.parent / "segments.ledger")
        self._owners = Owners(self._folder.parent / "segments.owners", secrets.token_hex(8))
        self._until_grow = 0
        self._seen_change = -1
        self._lock = threading.RLock()
        self._segments: dict[str, Segment] = {}
        self._own: OrderedDict[bytes, _Place] = OrderedDict()  # least recently used first
        self._others: dict[bytes, _Place] = {}
        self._others_names: dict[_Place, bytes] = {}
        self._free: list[_Place] = []
        self._busy: Counter[_Place] = Counter()
        with self._lock, self._ledger.locked() as books:
            self._refresh()
            books.used_bytes = sum(found.file_bytes for found in self._segments.values())

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`."""
        self._drop_lost()
        for index, key in enumerate(keys):
            with self._lock:
                present = self._find(key) is not None
            if not on_page(index, Verdict.HIT if present else Verdict.MISS):
                return

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`; bytes go from the page cache straight into the buffers."""
        self._drop_lost()
        header = bytearray(HEADER_BYTES)
        for index, key in enumerate(keys):
            if not on_page(index, self._read(key, header, buffers[index])):
                return

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`. A page that is there is kept as it is."""
        self._drop_lost()
        for index, key in enumerate(keys):
            if not on_page(index, self._write(key, buffers[index])):
                return

    def damage(self, name: bytes, length: int) -> None:
        """Flip a bit of a stored page, for tests. Raises KeyError where this handle has not stored it."""
        with self._lock:
            place = self._own[name]
            place.segment.flip(place.slot, length)

    def close(self) -> None:
        """See `BlockingStore.close`; the segments are free to be taken over."""
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self._ledger.close()

    def _read(self, name: bytes, header: bytearray, out: Buffer) -> Verdict:
        with self._lock:
            place = self._find(name)
            if place is None:
                return Verdict.MISS
            self._renew(name)
            self._busy[place] += 1
        with self._in_use(place):
            received = place.segment.read(place.slot, header, out)
            verdict = verify_received(header, out, name, received, self._layout)
        if verdict is Verdict.HIT:
            return verdict
        with self._lock:
            if not place.segment.holds(place.slot, name):
                return Verdict.MISS  # its owner has used the slot for another page meanwhile
            self.alarms[verdict] += 1
            self._forget(name, place)
        return verdict

    def _write(self, name: bytes, body: Buffer) -> Verdict:
        if len(body) > self._slot_bytes:
            return Verdict.REFUSED
        header = encode_header(name, body, self._layout)
        with self._lock:
            if self._find(name) is not None:
                self._renew(name)
                return Verdict.STORED
            place = self._take()
            if place is None:
                return Verdict.REFUSED
            self._busy[place] += 1
        whole = False
        try:
            with self._in_use(place):
                whole = place.segment.write(place.slot, header, body) and not place.segment.lost
        finally:
            with self._lock:
                if whole and name not in self._own:
                    self._own[name] = place
                else:  # cut short by a full disk, failed, or written by another thread meanwhile
                    self._free.append(place)
                    place.segment.wipe(place.slot)
        return Verdict.STORED if whole else Verdict.REFUSED

    @contextmanager
    def _in_use(self, place: _Place) -> Iterator[None]:
        """While a thread reads or writes a slot outside the lock, nobody takes the slot."""
        try:
            yield
        finally:
            with self._lock:
                self._busy[place] -= 1

    def _find(self, name: bytes) -> _Place | None:
        """Return where a page is; others' segments are looked at again before it is called absent."""
        place = self._own.get(name)
        if place is not None:
            return place
        place = self._others.get(name)
        if place is None or not place.segment.holds(place.slot, name):
            self._refresh()
        return self._own.get(name) or self._others.get(name)

    def _renew(self, name: bytes) -> None:
        if name in self._own:
            self._own.move_to_end(name)

    def _refresh(self) -> None:
        """Open segments that are new, own those that nobody owns, follow the changes of the others."""
        changed_at = self._folder.stat().st_mtime_ns
        if changed_at != self._seen_change:
            self._seen_change = settled(changed_at)
            self._list()
        for segment in self._segments.values():
            if not segment.owned:
                self._follow(segment)

    def _list(self) -> None:
        paths = segment_paths(self._folder)
        for path in paths:
            if path not in self._segments:
                with suppress(FileNotFoundError):  # removed meanwhile
                    self._segments[path] = segment = Segment(path)
                    self._claim(segment)
        for path in sorted(set(self._segments) - set(paths)):
            self._leave(path)

    def _claim(self, segment: Segment) -> bool:
        """Own a segment if its owner is gone: its pages, and its empty slots."""
        if not segment.claim():
            return False
        self._follow(segment)
        for slot in range(segment.slots):
            place = _Place(segment, slot)
            name = self._others_names.pop(place, None)
            if name is not None and self._others.pop(name, None) == place:
                self._own.setdefault(name, place)
            if name is None or self._own.get(name) != place:
                self._free.append(place)
        return True

    def _leave(self, path: str) -> None:
        """Forget a segment that was removed; it is closed once nobody reads or writes it."""
        segment = self._segments[path]
        for place in [place for place in self._others_names if place.segment is segment]:
            name = self._others_names.pop(place)
            if self._others.get(name) == place:
                del self._others[name]
        for name in [name for name, place in self._own.items() if place.segment is segment]:
            del self._own[name]
        self._free = [place for place in self._free if place.segment is not segment]
        if not any(place.segment is segment for place in +self._busy):
            del self._segments[path]
            segment.close()

    def _drop_lost(self) -> None:
        """Find out, once for each call, whether a segment of ours was taken away."""
        with self._lock:
            for path in [path for path, segment in self._segments.items() if segment.owned and segment.lost]:
                self._leave(path)

    def _follow(self, segment: Segment) -> None:
        """Learn what the slots of another handle's segment hold by now."""
        for slot, name in segment.changes():
            place = _Place(segment, slot)
            before = self._others_names.pop(place, None)
            if before is not None and self._others.get(before) == place:
                del self._others[before]
            if name is not None:
                self._others[name] = place
                self._others_names[place] = name

    def _take(self) -> _Place | None:
        """Return a slot to write to: a free one, one of a new segment, or the one used longest ago."""
        if not self._free and self._until_grow <= 0:
            self._grow()
        if self._free:
            return self._free.pop()
        self._until_grow = self._until_grow - 1 if self._until_grow else GROW_EVERY
        for name, place in self._own.items():
            if not self._busy[place]:
                del self._own[name]
                self.evicted_pages += 1
                return place
        return None

    def _grow(self) -> None:
        """Make a segment if capacity and floor allow, own one whose owner is gone, or seize one's room."""
        with self._ledger.locked() as books:
            self._refresh()
            for segment in list(self._segments.values()):
                if not (segment.owned or self._free):
                    self._claim(segment)
            if not (self._free or self._make(books)) and self._seize(books):
                self._make(books)
            owned = (path for path, segment in self._segments.items() if segment.owned)
            self._owners.tell(owned, self._segments)

    def _make(self, books: SizeLedger) -> bool:
        """Make a segment; False where there is no room for one."""
        size, disk = segment_bytes(self._slot_bytes, self._slots), os.statvfs(self._folder)
        within = books.used_bytes + size <= self._capacity_bytes
        if not within or disk.f_bavail * disk.f_frsize - size < self._floor_bytes:
            return False
        segment = _create(str(self._folder), self._slot_bytes, self._slots)
        if segment is None:
            return False
        books.used_bytes += segment.file_bytes
        self._segments[segment.path] = segment
        return self._claim(segment)

    def _seize(self, books: SizeLedger) -> bool:
        """Take the segment written longest ago from the handle that has most; False where ours is no smaller part."""
        others = {path: segment for path, segment in self._segments.items() if not segment.owned}
        paths = self._owners.seizable(len(self._segments) - len(others), others)
        if not paths:
            return False
        path = min(paths, key=lambda path: others[path].changed_at_ns)
        others[path].remove()
        books.used_bytes -= others[path].file_bytes
        self._leave(path)
        return True

    def _forget(self, name: bytes, place: _Place) -> None:
        """Drop a damaged page. In another handle's segment only our knowledge of it goes."""
        if self._own.get(name) == place:
            del self._own[name]
            place.segment.wipe(place.slot)
            self._free.append(place)
        elif self._others.get(name) == place:
            del self._others[name]


def _create(folder: str, slot_bytes: int, slots: int) -> Segment | None:
    """Make a segment, None where the disk has no room for it."""
    try:
        return Segment.create(folder, slot_bytes, slots)
    except OSError as error:
        if error.errno not in FULL:
            raise
        return None


def _refuse_other_pages(folder: Path, page_bytes: int, slot_bytes: int) -> None:
    """Raise ValueError where the directory is already one of other pages."""
    refuse_other_form(folder.parent, "pages")
    for path in segment_paths(folder):
        found = slot_size(path)
        if found != slot_bytes:
            raise ValueError(
                f"{folder.parent} holds packed pages in slots of {found} bytes; pages of {page_bytes} bytes take "
                f"slots of {slot_bytes}: give each page size a directory of its own"
            )


def _slots(slot_bytes: int, capacity_bytes: int, segments: int) -> int:
    """Return the slots of a segment: of 64 MiB, or so many of a small capacity, one page at least."""
    target = min(SEGMENT_BYTES, capacity_bytes // segments)
    slots = max(1, target // (slot_bytes + HEADER_BYTES))
    while slots > 1 and segment_bytes(slot_bytes, slots) > target:
        slots -= 1
    if segment_bytes(slot_bytes, slots) > capacity_bytes:
        raise ValueError(
            f"capacity of {capacity_bytes} bytes: a segment of one page takes {segment_bytes(slot_bytes, 1)}"
        )
    return slots
