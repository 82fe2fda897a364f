"""Where the page files of a file store lie, and what a walk over them finds.

It names, lists and removes files; it never looks into one. A folder holds `pages/` (two levels of shards),
`temp/` (files being written, named after host, process, size and a random part) and `ledger`.
"""
# ruff: noqa: PTH103, PTH104, PTH108, PTH120 - plain calls on strings, since this is the path of every page

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.kernels.checksum import spread

BLOCK_BYTES = 4096
"""File systems give out whole blocks; counting less would let the directory outgrow its capacity."""
ABANDONED_SECONDS = 3600.0
"""Age at which a temporary file of another host counts as left behind; a page takes well under a second."""


@dataclass(frozen=True, slots=True, order=True)
class PageFile:
    """One page file as a walk saw it; ordered by last use, then name."""

    used_at_ns: int
    path: str
    size_bytes: int


def disk_bytes(length: int) -> int:
    """Return what a file of `length` bytes takes, in whole blocks."""
    return -(-length // BLOCK_BYTES) * BLOCK_BYTES


class Folder:
    """The paths of one file store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pages, self._temp = f"{root}/pages", f"{root}/temp"
        Path(self._pages).mkdir(parents=True, exist_ok=True)
        Path(self._temp).mkdir(exist_ok=True)
        self._host = f"{spread(socket.gethostname().encode()):016x}"

    @property
    def ledger(self) -> Path:
        """The path of the size ledger."""
        return self.root / "ledger"

    def page(self, name: bytes) -> str:
        """Return the path of a page; the shard comes from a hash, since names may share their first bytes."""
        shard = spread(name)
        return f"{self._pages}/{shard & 15:x}/{shard >> 4 & 15:x}/{name.hex()}"

    def new_temp(self, size_bytes: int) -> str:
        """Return a path that nobody else has, telling how many bytes are meant to go there and whose it is.

        The process id alone is not enough: it is the same in a child until the child asks for its own.
        """
        return f"{self._temp}/{self._host}-{os.getpid()}-{size_bytes}-{secrets.token_hex(8)}"

    def publish(self, temp: str, path: str) -> None:
        """Rename a finished temporary file to its page, making the shard folder at its first use."""
        try:
            os.rename(temp, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(temp, path)

    def sweep(self) -> int:
        """Remove temporary files whose owner is gone; return the bytes that the living are still writing.

        To be called before `walk` in a count, so that a page renamed meanwhile is counted twice and not
        never.
        """
        live = 0
        with os.scandir(self._temp) as entries:
            for entry in entries:
                if self._is_abandoned(entry):
                    _remove(entry.path)
                else:
                    live += disk_bytes(int(entry.name.split("-")[2]))
        return live

    def walk(self) -> Iterator[PageFile]:
        """Yield every page file. Files shorter than a header, left by a power loss, are removed instead."""
        for shard in _folders(self._pages):
            for leaf in _folders(shard):
                with os.scandir(leaf) as entries:
                    for entry in entries:
                        found = _look(entry)
                        if found is not None:
                            yield found

    def _is_abandoned(self, entry: os.DirEntry[str]) -> bool:
        host, _, rest = entry.name.partition("-")
        process, _, rest = rest.partition("-")
        if not process.isdigit() or not rest.partition("-")[0].isdigit():
            return True
        if host == self._host and not _lives(int(process)):
            return True
        try:
            return time.time() - entry.stat().st_mtime > ABANDONED_SECONDS
        except FileNotFoundError:
            return True


def _folders(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _look(entry: os.DirEntry[str]) -> PageFile | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if status.st_size < HEADER_BYTES:
        _remove(entry.path)
        return None
    return PageFile(status.st_mtime_ns, entry.path, disk_bytes(status.st_size))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: str) -> bool:
    """Unlink; False where somebody else was quicker."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
