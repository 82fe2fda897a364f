"""One segment: a file of equal slots for small pages, all headers in front, all bodies behind.

Headers lie together, so that one read tells what a segment holds. A slot is written body first and header
last, and emptied by its header: a crash in between leaves a slot without a page, or one whose checksum
fails. One handle owns the segment for writing (an advisory lock that ends with its process); everybody may
read.
"""
# ruff: noqa: PTH104, PTH108 - plain calls on strings, since this is the path of every page

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator

from stagehold.cache.stores.page import HEADER_BYTES, read_identity
from stagehold.cache.stores.protocol import Buffer

ALIGN_BYTES = 4096
SETTLED_NS = 100_000_000
"""Well over the step of a file's time (4 or 10 ms here and there)."""
SUFFIX = ".segment"
MOST_SLOTS = 1 << 14
"""Of the smallest size, in 64 MiB; what a name says is not believed beyond that, since the table is kept in memory."""
_NAME = re.compile(r"([1-9][0-9]{0,9})-([1-9][0-9]{0,4})-[0-9a-f]{16}\.segment")
"""Bytes of a slot, slots."""
_EMPTY = bytes(HEADER_BYTES)


class Segment:
    """An open segment file, named after its slot size and slot count. Only its owner may write."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.slot_bytes = slot_size(path)
        self.slots = int(path.rpartition("/")[2].split("-")[1])
        self.owned = False
        self._first_body = table_bytes(self.slots)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        self._seen_table = bytes(self.slots * HEADER_BYTES)
        self._seen_change = -1

    @property
    def file_bytes(self) -> int:
        """The size of the file on disk."""
        return segment_bytes(self.slot_bytes, self.slots)

    @property
    def descriptor(self) -> int:
        """The open file, for tools that read it."""
        return self._descriptor

    def places(self, slot: int) -> tuple[int, int]:
        """Where header and body of a slot begin in the file."""
        return slot * HEADER_BYTES, self._first_body + slot * self.slot_bytes

    @property
    def lost(self) -> bool:
        """Whether the file was removed, by a person or by another handle that seized its room."""
        return os.fstat(self._descriptor).st_nlink == 0

    @property
    def changed_at_ns(self) -> int:
        """When the file was last written to."""
        return os.fstat(self._descriptor).st_mtime_ns

    @classmethod
    def create(cls, folder: str, slot_bytes: int, slots: int) -> Segment:
        """Make a segment with its disk space taken. Raises OSError where there is none, leaving nothing."""
        path = f"{folder}/{slot_bytes}-{slots}-{secrets.token_hex(8)}{SUFFIX}"
        descriptor = os.open(f"{path}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.posix_fallocate(descriptor, 0, segment_bytes(slot_bytes, slots))
            os.rename(f"{path}.new", path)
        except OSError:
            os.unlink(f"{path}.new")
            raise
        finally:
            os.close(descriptor)
        return cls(path)

    def claim(self) -> bool:
        """Become the owner; False where another living handle is, or where the file was removed."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.owned = not self.lost
        return self.owned

    def remove(self) -> None:
        """Take file and bytes from the disk, whoever owns them: from now on the segment is `lost`, and empty."""
        os.unlink(self.path)
        os.ftruncate(self._descriptor, 0)

    def changes(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield each slot that changed since the last call (at first: is in use), and its name or None."""
        changed_at = self.changed_at_ns
        if changed_at == self._seen_change:
            return
        self._seen_change = settled(changed_at)
        table = os.pread(self._descriptor, self.slots * HEADER_BYTES, 0)
        before, self._seen_table = self._seen_table, table
        for slot in range(self.slots):
            header = table[slot * HEADER_BYTES : (slot + 1) * HEADER_BYTES]
            if header != before[slot * HEADER_BYTES : (slot + 1) * HEADER_BYTES]:
                identity = read_identity(header)
                yield slot, identity.name if identity is not None else None

    def holds(self, slot: int, name: bytes) -> bool:
        """Say whether the slot's header names `name` at this moment."""
        identity = read_identity(os.pread(self._descriptor, HEADER_BYTES, slot * HEADER_BYTES))
        return identity is not None and identity.name == name

    def read(self, slot: int, header: bytearray, out: Buffer) -> int:
        """Read a slot, never beyond its end; return how many bytes of header and body came."""
        received = os.preadv(self._descriptor, [header], slot * HEADER_BYTES)
        body = out[: self.slot_bytes]
        return received + os.preadv(self._descriptor, [body], self._first_body + slot * self.slot_bytes)

    def write(self, slot: int, header: bytes, body: Buffer) -> bool:
        """Put a page into a slot; False where the disk took only part of it, and the slot is empty then."""
        assert self.owned, f"{self.path} is written by another handle"
        self.wipe(slot)
        start = self._first_body + slot * self.slot_bytes
        if os.pwritev(self._descriptor, [body], start) != len(body):
            return False
        return os.pwrite(self._descriptor, header, slot * HEADER_BYTES) == HEADER_BYTES

    def wipe(self, slot: int) -> None:
        """Empty a slot."""
        assert self.owned, f"{self.path} is written by another handle"
        os.pwrite(self._descriptor, _EMPTY, slot * HEADER_BYTES)

    def flip(self, slot: int, length: int) -> None:
        """Flip a bit in the last byte of a body of `length` bytes, for tests."""
        place = self._first_body + slot * self.slot_bytes + length - 1
        last = os.pread(self._descriptor, 1, place)[0]
        os.pwrite(self._descriptor, bytes([last ^ 1]), place)

    def close(self) -> None:
        """Give up ownership and the descriptor."""
        os.close(self._descriptor)


def settled(changed_at_ns: int) -> int:
    """Return a time of change that is to be remembered, or -1 where it is too recent to mean anything.

    The times of files move in coarse steps: more changes may hide behind one of just now.
    """
    return changed_at_ns if time.time_ns() - changed_at_ns > SETTLED_NS else -1


def segment_paths(folder: str | os.PathLike[str]) -> list[str]:
    """Return the segment files in `folder`, in the order of their names; none where there is no folder.

    What is named otherwise, or is no file, is passed over.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if _is_segment(entry))
    except FileNotFoundError:
        return []


def _is_segment(entry: os.DirEntry[str]) -> bool:
    found = _NAME.fullmatch(entry.name)
    return found is not None and int(found[2]) <= MOST_SLOTS and entry.is_file(follow_symlinks=False)


def slot_size(path: str) -> int:
    """Return the bytes of a slot, from a segment's name."""
    return int(path.rpartition("/")[2].split("-")[0])


def table_bytes(slots: int) -> int:
    """Return the bytes in front of the first body."""
    return -(-slots * HEADER_BYTES // ALIGN_BYTES) * ALIGN_BYTES


def segment_bytes(slot_bytes: int, slots: int) -> int:
    """Return the size of a whole segment."""
    return table_bytes(slots) + slot_bytes * slots
