"""Looking after a directory of pages: list, verify, and bring down to a size. For people and their cron jobs.

Works beside running stores: it reads as they read and removes as they evict. It never writes a page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.files import READING, FileStore
from stagehold.cache.stores.folder import TENANTS, Folder, part_folders
from stagehold.cache.stores.ledger import SizeLedger
from stagehold.cache.stores.page import HEADER_BYTES, Identity, read_identity, verify_pieces
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.segment import Segment, segment_paths

PIECE_BYTES = 1 << 20
"""Read at a time: what a header or a file's length claims is not memory that one may need."""


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as it lies there: where, what its header claims, and what a check of all its bytes says."""

    path: str
    identity: Identity | None
    verdict: Verdict


def list_pages(root: str | os.PathLike[str]) -> Iterator[StoredPage]:
    """Yield every page under `root`, verified. Raises FileNotFoundError for no directory."""
    folder = _existing(root)
    for part in part_folders(folder):
        yield from list_pages(part)
    if (folder / "pages").is_dir():
        for found in sorted(Folder(folder).survey().pages, key=lambda page: page.path):
            yield from _list_page(found.path)
    for path in segment_paths(folder / "segments"):
        yield from _list_segment(path)


def verify_pages(root: str | os.PathLike[str]) -> Counter[Verdict]:
    """Return how many pages under `root` are whole (HIT), and how many are damaged in which way."""
    return Counter(page.verdict for page in list_pages(root))


def collect(root: str | os.PathLike[str], capacity_bytes: int) -> int:
    """Evict pages under `root` until they take at most `capacity_bytes`; return how many went.

    Leftovers of dead processes are swept first. Packed pages go in whole segments, those written longest ago
    first; a segment that a living process writes to stays. Raises ValueError where each tenant has a folder of its own.
    """
    folder = _existing(root)
    if (folder / TENANTS).is_dir():
        raise ValueError(f"{folder} holds a folder for each tenant: give one of those in {folder / TENANTS}")
    if (folder / "segments").is_dir():
        return _collect_segments(folder, capacity_bytes)
    store = FileStore(folder, capacity_bytes=capacity_bytes, floor_bytes=0)
    store.close()
    return store.evicted_pages


def _collect_segments(folder: Path, capacity_bytes: int) -> int:
    ledger, evicted = SizeLedger(folder / "segments.ledger"), 0
    segments = [Segment(path) for path in segment_paths(folder / "segments")]
    with ledger.locked() as books:
        books.used_bytes = sum(segment.file_bytes for segment in segments)
        for segment in sorted(segments, key=lambda found: found.changed_at_ns):
            if books.used_bytes > capacity_bytes and segment.claim():
                evicted += sum(name is not None for _, name in segment.changes())
                segment.remove()
                books.used_bytes -= segment.file_bytes
            segment.close()
    ledger.close()
    return evicted


def _existing(root: str | os.PathLike[str]) -> Path:
    folder = Path(root)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such directory")
    return folder


def _list_page(path: str) -> Iterator[StoredPage]:
    try:
        descriptor = os.open(path, READING)
    except FileNotFoundError:
        return  # evicted meanwhile
    try:
        there = os.fstat(descriptor).st_size - HEADER_BYTES
        yield _checked(path, descriptor, (0, HEADER_BYTES), there, bytes.fromhex(Path(path).name))
    finally:
        os.close(descriptor)


def _list_segment(path: str) -> Iterator[StoredPage]:
    segment = Segment(path)
    try:
        for slot, name in segment.changes():
            yield _checked(f"{path}#{slot}", segment.descriptor, segment.places(slot), segment.slot_bytes, name or b"")
    finally:
        segment.close()


def _checked(path: str, descriptor: int, places: tuple[int, int], there: int, name: bytes) -> StoredPage:
    """A page whose header and body begin at `places` of a file, with room for a body of `there` bytes at most."""
    header = os.pread(descriptor, HEADER_BYTES, places[0])
    identity = read_identity(header)
    pieces = _pieces(descriptor, places[1], 0 if identity is None else identity.body_bytes)
    return StoredPage(path, identity, verify_pieces(header, pieces, there, name))


def _pieces(descriptor: int, at: int, length: int) -> Iterator[bytes]:
    end = at + length
    while at < end and (piece := os.pread(descriptor, min(PIECE_BYTES, end - at), at)):
        yield piece
        at += len(piece)
