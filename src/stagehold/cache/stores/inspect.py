"""Looking after a directory of pages: list, verify, and bring down to a size. For people and their cron jobs.

Works beside running stores: it reads as they read and removes as they evict. It never writes a page.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.folder import Folder
from stagehold.cache.stores.ledger import SizeLedger
from stagehold.cache.stores.page import HEADER_BYTES, Identity, read_identity, verify
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.segment import Segment, segment_paths


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as it lies there: where, what its header claims, and what a check of all its bytes says."""

    path: str
    identity: Identity | None
    verdict: Verdict


def list_pages(root: str | os.PathLike[str]) -> Iterator[StoredPage]:
    """Yield every page under `root`, verified. Raises FileNotFoundError for no directory."""
    folder = _existing(root)
    if (folder / "pages").is_dir():
        for found in sorted(Folder(folder).survey().pages, key=lambda page: page.path):
            yield _check(found.path, Path(found.path).read_bytes(), bytes.fromhex(Path(found.path).name))
    for path in segment_paths(folder / "segments"):
        yield from _list_segment(path)


def verify_pages(root: str | os.PathLike[str]) -> Counter[Verdict]:
    """Return how many pages under `root` are whole (HIT), and how many are damaged in which way."""
    return Counter(page.verdict for page in list_pages(root))


def collect(root: str | os.PathLike[str], capacity_bytes: int) -> int:
    """Evict pages under `root` until they take at most `capacity_bytes`; return how many went.

    Leftovers of dead processes are swept first. Packed pages go in whole segments, those written longest ago
    first; a segment that a living process writes to stays.
    """
    folder = _existing(root)
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


def _check(path: str, raw: bytes, name: bytes) -> StoredPage:
    identity = read_identity(raw)
    if identity is None:
        verdict = verify(raw[:HEADER_BYTES], memoryview(b""), name, 0)
        return StoredPage(path, None, verdict)
    body = memoryview(raw)[HEADER_BYTES:]
    return StoredPage(path, identity, verify(raw[:HEADER_BYTES], body, name, identity.body_bytes, identity.layout))


def _list_segment(path: str) -> Iterator[StoredPage]:
    segment = Segment(path)
    try:
        for slot, name in segment.changes():
            header, body = bytearray(HEADER_BYTES), memoryview(bytearray(segment.slot_bytes))
            received = segment.read(slot, header, body)
            raw = bytes(header) + bytes(body[: received - HEADER_BYTES])
            yield _check(f"{path}#{slot}", raw, name or b"")
    finally:
        segment.close()
