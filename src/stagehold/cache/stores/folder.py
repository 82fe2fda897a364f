"""Where the page files of a file store lie, and what a walk over them finds.

It names, lists and removes files; it never looks into one. A folder holds `ledger` and `pages/` with its
shards, all made at the first opening; in these lie pages, named after their object, and hidden files being
written, named after host, process, size and a random part. A file begins its life in its shard, since that is
where file systems then place it.
"""
# ruff: noqa: PTH108 - plain calls on strings, since this is the path of every page

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.kernels.checksum import spread

SHARDS = 32
"""Enough that millions of pages make directories of a size that every file system likes; few enough to be
made ahead, since making one costs as much as writing a page."""
BLOCK_BYTES = 4096
"""File systems give out whole blocks; counting less would let the directory outgrow its capacity."""
FORMS = {"pages": "a file for each page (form=pages)", "segments": "packed pages (form=packed)"}
"""Folders under a root, and what the form of store is whose pages are there."""
TENANTS, NOBODY = "tenants", "nobody"
"""The folder under a root in which each tenant has its own, and the one in there for pages of no tenant."""
HIDDEN = ".new-"
"""How the name of a file that is being written begins."""
_PAGE_NAME = re.compile(r"(?:[0-9a-f]{2})+")
_TENANT = re.compile(r"[0-9a-f]{32}")
_OWNER = re.compile(r"\.new-([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,15})-[0-9a-f]{16}")
"""Host, process and size of a file that is being written; a name of another form is nobody's."""
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


@dataclass(frozen=True, slots=True)
class Survey:
    """What a walk found: all pages, least recently used first, and bytes reserved by living writers."""

    pages: list[PageFile]
    writing_bytes: int


class Folder:
    """The paths of one file store. Raises ValueError for a directory that holds packed pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pages = f"{root}/pages"
        refuse_other_form(root, "segments")
        if not Path(self._pages).is_dir():
            for shard in range(SHARDS):
                Path(self._pages, f"{shard:02x}").mkdir(parents=True, exist_ok=True)
        self._host = f"{spread(socket.gethostname().encode()):016x}"

    @property
    def ledger(self) -> Path:
        """The path of the size ledger."""
        return self.root / "ledger"

    def page(self, name: bytes) -> str:
        """Return the path of a page; the shard comes from a hash, since names may share their first bytes."""
        return f"{self._pages}/{spread(name) % SHARDS:02x}/{name.hex()}"

    def temp(self, path: str, size_bytes: int) -> str:
        """Return a path beside `path` that nobody else has; its name tells owner and intended size.

        The process id alone is not enough: threads share it, and a child has it until it asks for its own.
        """
        owner = f"{self._host}-{os.getpid()}-{size_bytes}-{secrets.token_hex(8)}"
        return f"{path.rpartition('/')[0]}/{HIDDEN}{owner}"

    def survey(self) -> Survey:
        """Walk over everything, removing what is left of dead writers and files too short to be a page."""
        pages, writing = [], 0
        for shard in _folders(self._pages):
            with os.scandir(shard) as entries:
                for entry in entries:
                    if entry.name.startswith(HIDDEN):
                        writing += self._writing_bytes(entry)
                    elif (found := _look(entry)) is not None:
                        pages.append(found)
        return Survey(sorted(pages), writing)

    def _writing_bytes(self, entry: os.DirEntry[str]) -> int:
        """Return what a living writer has reserved; sweep the file of a dead one."""
        owner = _OWNER.fullmatch(entry.name)
        if owner is not None and not self._is_abandoned(entry, owner[1], int(owner[2])):
            return disk_bytes(int(owner[3]))
        _remove(entry.path)
        return 0

    def _is_abandoned(self, entry: os.DirEntry[str], host: str, process: int) -> bool:
        if host == self._host and not _lives(process):
            return True
        try:
            return time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_SECONDS
        except FileNotFoundError:
            return True


def refuse_other_form(root: Path, other: str) -> None:
    """Raise ValueError where a store of the other form has its pages under `root`, in the folder `other`.

    Each form keeps books of its own about the capacity: both together would take twice what was allowed. So does each
    tenant, where `root` has a folder for each.
    """
    if (root / TENANTS).is_dir():
        raise ValueError(
            f"{root} holds a folder for each tenant: open it with the option tenants, or give a directory of its own"
        )
    if (root / other).is_dir():
        raise ValueError(
            f"{root} holds {FORMS[other]}; pages below 512 KiB are packed, larger ones have a file each: "
            "give each page size a directory of its own"
        )


def tenant_folders(root: Path) -> list[Path]:
    """Return the folders of all tenants under `root`, sorted; none where tenants are not kept apart.

    What is named otherwise, or is no folder, is passed over.
    """
    try:
        found = _folders(f"{root}/{TENANTS}")
    except FileNotFoundError:
        return []
    return [Path(path) for path in found if _TENANT.fullmatch(path.rpartition("/")[2])]


def part_folders(root: Path) -> list[Path]:
    """Return the folders with pages of tenants, and of none, where `root` keeps tenants apart."""
    nobodys = root / TENANTS / NOBODY
    return [*tenant_folders(root), *([nobodys] if nobodys.is_dir() and not nobodys.is_symlink() else [])]


def _folders(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _look(entry: os.DirEntry[str]) -> PageFile | None:
    if _PAGE_NAME.fullmatch(entry.name) is None:
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
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


def _remove(path: str) -> None:
    """Unlink, unless somebody else was quicker, or it is a folder."""
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        os.unlink(path)
