"""The file store: one file for each page, the embedded default.

A page is written under a temporary name, checked for length and renamed, without a sync: what a crash leaves
behind is told by the checksum and is a miss. Any number of processes may share a directory. Capacity and
free-space floor hold for all of them together; the least recently used pages go first. It never maps a file
into memory.
"""
# ruff: noqa: PTH103, PTH104, PTH108, PTH116 - plain calls on strings, since this is the path of every page

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stagehold.cache.stores.folder import Folder, PageFile, disk_bytes
from stagehold.cache.stores.ledger import SizeLedger
from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout, encode_header, verify_received
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict

EVICT_SHARE = 0.1
"""Evicting a tenth of what is held at once makes one walk over the directory pay for many puts."""
FLOOR_BYTES = 1 << 30
FLOOR_SHARE = 0.05
"""The default free-space floor: one GiB, or a twentieth of a disk smaller than 20 GiB."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that mean no room: a refusal, not a fault of the store."""
NO_PAGE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
"""Errors of an open that mean a link, a socket, or a name that no page can have."""
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Out of the folder by no link, and no waiting for the other end of a pipe."""


DEFAULT_SHARE = 0.5
"""The default capacity, as a share of the disk: a budget that nobody set must not fill a node."""


def default_capacity(root: Path) -> int:
    """Return how many bytes a store takes of the disk under `root` unless told otherwise."""
    disk = os.statvfs(root)
    return int(DEFAULT_SHARE * disk.f_blocks * disk.f_frsize)


def default_floor(root: Path) -> int:
    """Return how many bytes of the disk under `root` a store leaves free unless told otherwise."""
    disk = os.statvfs(root)
    return min(FLOOR_BYTES, int(FLOOR_SHARE * disk.f_blocks * disk.f_frsize))


class FileStore:
    """A `BlockingStore` over a directory, which is made if missing.

    `capacity_bytes` counts whole disk blocks over all processes (None: `default_capacity`);
    `floor_bytes` is the free space to leave on the disk (None: `default_floor`). A damaged file is removed
    when it is found, and counted in `alarms` by its verdict. Raises ValueError for a directory that holds
    packed pages.
    """

    name = "file"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        capacity_bytes: int | None = None,
        floor_bytes: int | None = None,
        layout: Layout = WHOLE,
    ) -> None:
        if capacity_bytes is not None and capacity_bytes <= 0:
            raise ValueError(f"capacity of {capacity_bytes} bytes: expected a positive number")
        self.alarms: Counter[Verdict] = Counter()
        self.evicted_pages = 0
        self._folder = Folder(Path(root).absolute())
        self._ledger = SizeLedger(self._folder.ledger)
        self._capacity_bytes = default_capacity(self._folder.root) if capacity_bytes is None else capacity_bytes
        self._floor_bytes = default_floor(self._folder.root) if floor_bytes is None else floor_bytes
        self._layout = layout
        self._stamp_lock = threading.Lock()
        self._last_stamp = 0
        with self._ledger.locked() as books:
            self._fit(books, 0)

    @property
    def used_bytes(self) -> int:
        """What all processes together have written or reserved, as the ledger has it now."""
        with self._ledger.locked() as books:
            return books.used_bytes

    def files(self) -> list[PageFile]:
        """Return all page files, least recently used first."""
        return self._folder.survey().pages

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`. One `stat` each: the directory is the index of all processes."""
        for index, key in enumerate(keys):
            present = _length(self._folder.page(key)) >= HEADER_BYTES
            if not on_page(index, Verdict.HIT if present else Verdict.MISS):
                return

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`; bytes go from the page cache straight into the buffers."""
        header = bytearray(HEADER_BYTES)
        for index, key in enumerate(keys):
            if not on_page(index, self._read(key, header, buffers[index])):
                return

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`. A page that is there in full length is kept as it is."""
        for index, key in enumerate(keys):
            if not on_page(index, self._write(key, buffers[index])):
                return

    def damage(self, name: bytes, length: int) -> None:  # noqa: ARG002
        """Flip the last bit of a stored page, for tests. Raises FileNotFoundError where it is not stored."""
        with Path(self._folder.page(name)).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))

    def close(self) -> None:
        """See `BlockingStore.close`."""
        self._ledger.close()

    def _read(self, name: bytes, header: bytearray, out: Buffer) -> Verdict:
        path = self._folder.page(name)
        try:
            descriptor = os.open(path, READING)
        except FileNotFoundError:
            return Verdict.MISS
        except OSError as error:
            if error.errno not in NO_PAGE:
                raise
            verdict = Verdict.FOREIGN
        else:
            try:
                verdict = self._received(descriptor, header, out, name)
                if verdict is Verdict.HIT:
                    self._touch(descriptor)
                    return verdict
            finally:
                os.close(descriptor)
        self.alarms[verdict] += 1
        self._discard(path)
        return verdict

    def _received(self, descriptor: int, header: bytearray, out: Buffer, name: bytes) -> Verdict:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Verdict.FOREIGN
        received = os.preadv(descriptor, [header, out], 0)
        return verify_received(header, out, name, received, self._layout)

    def _write(self, name: bytes, body: Buffer) -> Verdict:
        path, length = self._folder.page(name), HEADER_BYTES + len(body)
        held = _length(path)
        if held == length:
            self._touch(path)
            return Verdict.STORED
        if held >= 0:
            self._discard(path)
        header = encode_header(name, body, self._layout)
        reserved = self._reserve(path, length)
        if reserved is None:
            return Verdict.REFUSED
        temp, descriptor = reserved
        published = False
        try:
            if _write_whole(descriptor, [header, body], length):
                self._touch(descriptor)
                with self._ledger.locked():  # so that a walk sees the file under one of its names
                    published = _renamed(temp, path)
        finally:
            os.close(descriptor)
            if not published:
                with suppress(FileNotFoundError):
                    os.unlink(temp)
                self._ledger.add(-disk_bytes(length))
        return Verdict.STORED if published else Verdict.REFUSED

    def _reserve(self, path: str, length: int) -> tuple[str, int] | None:
        """Book the bytes and open the temporary file in one locked step; None where there is no room."""
        with self._ledger.locked() as books:
            if not self._has_room(books, disk_bytes(length)) and not self._fit(books, disk_bytes(length)):
                return None
            temp = self._folder.temp(path, length)
            try:
                descriptor = _create(temp)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                return None
            books.used_bytes += disk_bytes(length)
            return temp, descriptor

    def _has_room(self, books: SizeLedger, size: int) -> bool:
        return books.used_bytes + size <= self._capacity_bytes and self._missing_bytes(size) <= 0

    def _missing_bytes(self, size: int) -> int:
        """How far a page of `size` would push the disk under its floor."""
        disk = os.statvfs(self._folder.root)
        return self._floor_bytes + size - disk.f_bavail * disk.f_frsize

    def _fit(self, books: SizeLedger, size: int) -> bool:
        """Count anew and evict until `size` fits, and a share more; False where it cannot."""
        found = self._folder.survey()
        books.used_bytes = found.writing_bytes + sum(page.size_bytes for page in found.pages)
        if self._has_room(books, size):
            return True
        if size > self._capacity_bytes:
            return False
        target = max(0, books.used_bytes - max(0, self._missing_bytes(size)))
        target = min(target, self._capacity_bytes - size)
        self._evict(books, found.pages, target - int(EVICT_SHARE * target))
        return self._has_room(books, size)

    def _evict(self, books: SizeLedger, files: list[PageFile], target: int) -> None:
        """Unlink, least recently used first; a reader that has the file open keeps its bytes."""
        for found in files:
            if books.used_bytes <= target:
                return
            Path(found.path).unlink(missing_ok=True)
            books.used_bytes -= found.size_bytes
            self.evicted_pages += 1

    def _discard(self, path: str) -> None:
        """Remove a damaged file; a good one put in its place meanwhile is merely lost, and a miss."""
        length = _length(path)
        try:
            os.unlink(path)
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return
        except OSError as error:
            if error.errno not in NO_PAGE:
                raise
            return
        self._ledger.add(-disk_bytes(max(0, length)))

    def _touch(self, file: str | int) -> None:
        """Renew a page. The stamps of one process strictly ascend: it evicts in the order of use."""
        with self._stamp_lock:
            self._last_stamp = stamp = max(self._last_stamp + 1, time.time_ns())
        try:
            os.utime(file, ns=(stamp, stamp))
        except (FileNotFoundError, PermissionError):
            return  # evicted meanwhile, or owned by another user: it keeps its old stamp


def _write_whole(descriptor: int, pieces: Sequence[Buffer | bytes], length: int) -> bool:
    """Write all pieces; False where the disk is full, which shortens a vectored write without an error."""
    try:
        return os.pwritev(descriptor, pieces, 0) == length
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False


def _renamed(temp: str, path: str) -> bool:
    """Give a written file its name; False where somebody has put a folder there."""
    try:
        os.rename(temp, path)
    except IsADirectoryError:
        return False
    return True


def _create(path: str) -> int:
    """Open a new file for writing, in a shard made anew should somebody have cleared it away."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(path.rpartition("/")[0], exist_ok=True)
        return os.open(path, flags, 0o666)


def _length(path: str) -> int:
    """Return the length of a file, -1 where there is none: a link or a folder is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return -1
    except OSError as error:
        if error.errno not in NO_PAGE:
            raise
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1
