"""How many bytes a directory of pages holds, counted once for all processes that share it.

A file with one little-endian u64 under an advisory lock. Bytes are reserved before they are written, so
that a process that dies leaves the count too high, never too low; a walk over the directory sets it right.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COUNT = struct.Struct("<Q")
_MOST = (1 << 64) - 1


class SizeLedger:
    """The shared count. `locked` is the only door: what is read there stays true until it is left."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        # The advisory lock belongs to the descriptor, so the threads of one process need a lock of their own.
        self._threads = threading.Lock()
        self.used_bytes = 0

    @contextmanager
    def locked(self) -> Iterator[SizeLedger]:
        """Hold the lock, with `used_bytes` as it is now; a change is written back on leaving."""
        with self._threads:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                self.used_bytes = before = self._read()
                yield self
                self.used_bytes = min(max(0, self.used_bytes), _MOST)
                if self.used_bytes != before:
                    os.pwrite(self._descriptor, _COUNT.pack(self.used_bytes), 0)
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _read(self) -> int:
        raw = os.pread(self._descriptor, _COUNT.size, 0)
        return int(_COUNT.unpack(raw)[0]) if len(raw) == _COUNT.size else 0

    def add(self, count_bytes: int) -> None:
        """Change the count by `count_bytes`, which may be negative."""
        with self.locked() as books:
            books.used_bytes += count_bytes

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
