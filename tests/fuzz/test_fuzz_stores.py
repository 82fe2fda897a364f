"""Stores that others can write to: a page is the one that was put or a miss, and nothing leaves the folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.inspect import collect, list_pages, verify_pages
from stagehold.cache.stores.objects import ObjectStore
from stagehold.cache.stores.packed import PackedStore
from stagehold.cache.stores.page import HEADER_BYTES, Layout, encode_header, read_identity, unpack_into, verify_received
from stagehold.cache.stores.protocol import Verdict
from stagehold.testing.hostile import corpus, damaged, memory_within

HOSTILE = settings.get_profile("hostile")
CORPUS = Path(__file__).parent / "corpus"
SIZE = 300
NAMES = [b"page-%059d" % index for index in range(4)]
BODIES = [bytes([index + 1]) * SIZE for index in range(4)]
LAYOUT = Layout(1, 2, 4, 0, 1)
SOUND = [encode_header(name, body, LAYOUT) + body for name, body in zip(NAMES, BODIES, strict=True)]
MEMORY = 24 << 20
WORDS = [b"STGHOLDP", NAMES[0], NAMES[1], bytes(16), bytes(256)]


def got(store: FileStore | PackedStore | ObjectStore, names: Sequence[bytes] = NAMES) -> list[Verdict]:
    """Every page by itself; one that is a hit is the one that was put."""
    verdicts: list[Verdict] = []
    for name in names:
        out = memoryview(bytearray(SIZE))
        store.get_into([name], [out], lambda _index, verdict: verdicts.append(verdict) is None)
        if verdicts[-1] is Verdict.HIT:
            assert out == BODIES[NAMES.index(name)]
    return verdicts


def put(store: FileStore | PackedStore | ObjectStore) -> list[Verdict]:
    verdicts: list[Verdict] = []
    store.put(NAMES, [memoryview(bytearray(body)) for body in BODIES], lambda _i, v: verdicts.append(v) is None)
    return verdicts


def unpacked(raw: bytes) -> None:
    """Every way in which a page object is looked at."""
    with memory_within(MEMORY):
        out = memoryview(bytearray(SIZE))
        verdict = unpack_into(raw, out, NAMES[0], LAYOUT)
        header = bytearray(raw[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"))
        body = memoryview(bytearray(raw[HEADER_BYTES : HEADER_BYTES + SIZE].ljust(SIZE, b"\0")))
        received = verify_received(header, body, NAMES[0], min(len(raw), HEADER_BYTES + SIZE), LAYOUT)
        read_identity(raw)
    right = raw[: HEADER_BYTES + SIZE] == SOUND[0]
    assert right == (verdict is Verdict.HIT)
    assert right == (received is Verdict.HIT)


@settings(HOSTILE)
@given(raw=damaged(SOUND, WORDS) | st.binary(max_size=600))
def test_any_object_is_its_page_or_a_miss(raw: bytes) -> None:
    """Header and body from anybody."""
    unpacked(raw)


@pytest.mark.parametrize("path", corpus(CORPUS / "pages"), ids=lambda path: path.name)
def test_objects_that_once_went_wrong(path: Path) -> None:
    """The inputs that were found, and one to begin with."""
    unpacked(path.read_bytes())


class Shelf:
    """A service that keeps whole objects, and whatever others put on it."""

    name = "shelf"

    def __init__(self, objects: dict[bytes, bytes]) -> None:
        self.objects = objects

    def present(self, names: Sequence[bytes]) -> list[bool]:
        return [name in self.objects for name in names]

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> list[bytes | None]:
        return [self.objects.get(name) for name in names]

    def send(self, names: Sequence[bytes], objects: Sequence[bytes]) -> list[Verdict]:
        self.objects.update(zip(names, objects, strict=True))
        return [Verdict.STORED] * len(names)

    def remove(self, name: bytes) -> None:
        self.objects.pop(name, None)

    def close(self) -> None:
        pass


@settings(HOSTILE)
@given(raws=st.lists(damaged(SOUND, WORDS), min_size=4, max_size=4))
def test_any_object_of_a_service_is_a_hit_or_goes(raws: list[bytes]) -> None:
    """A damaged object is removed, and put again."""
    store = ObjectStore(Shelf(dict(zip(NAMES, raws, strict=True))), layout=LAYOUT)
    got(store)
    put(store)
    assert [Verdict.HIT] * 4 == got(store)
    store.close()


NEW = ".new-0123456789abcdef"
FILE_NAMES = st.sampled_from([
    "00", "0" * 64, "0" * 254, "zz", f"{NEW}-1-64-0123456789abcdef", f"{NEW}-99999999999-64-0123456789abcdef",
    f"{NEW}-1-99999999999999999999999-0123456789abcdef", f"{NEW}-²-³-0123456789abcdef", ".new-", ".new----",
    f"{NEW}-999999999-999999999999999-0123456789abcdef",
]) | st.sampled_from([name.hex() for name in NAMES])  # fmt: skip
SEGMENT_NAMES = [
    "x.segment", "-.segment", "4096-1-0123456789abcdef.segment", "4096-99999999999-0123456789abcdef.segment",
    "0-1-0123456789abcdef.segment", "4096-0-0123456789abcdef.segment", "-4096-1-0123456789abcdef.segment",
    "99999999999999-1-0123456789abcdef.segment", "4096-16384-0123456789abcdef.segment", "²-1-0123456789abcdef.segment",
    "4096-1-0123456789abcdef.segment.new", "4096--1-0123456789abcdef.segment",
]  # fmt: skip
PACKED_NAMES = st.sampled_from(SEGMENT_NAMES)


def planted(place: Path, kind: str, raw: bytes, outside: Path) -> None:
    """Put something in the place of a file: bytes, a terabyte of nothing, a link out, a loop, a folder, a pipe."""
    if place.is_dir() and not place.is_symlink():
        return
    place.unlink(missing_ok=True)
    if kind == "file":
        place.write_bytes(raw)
    elif kind == "hole":
        place.write_bytes(raw)
        os.truncate(place, 1 << 40)
    elif kind == "link":
        place.symlink_to(outside)
    elif kind == "loop":
        place.symlink_to(place.name)
    elif kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as one:
            here = os.open(place.parent, os.O_RDONLY)
            try:  # a path of a socket is short
                one.bind(f"/proc/self/fd/{here}/{place.name}")
            except OSError:  # a name that is too long for one
                place.write_bytes(raw)
            finally:
                os.close(here)


KINDS = st.sampled_from(["file", "file", "file", "hole", "link", "loop", "folder", "pipe", "socket"])
SECRET = encode_header(NAMES[3], BODIES[3], LAYOUT) + BODIES[3]


def used(open_store: Callable[[Path], Any], root: Path, outside: Path) -> None:
    """Opened, read, written, read, listed, collected, opened again; the file outside stays as it is."""
    before = outside.read_bytes(), outside.stat().st_mtime_ns
    with memory_within(MEMORY):
        for _ in range(2):
            store = open_store(root)
            store.exists(NAMES, lambda *_: True)
            got(store)
            put(store)
            got(store)
            store.close()
        verify_pages(root)
        collect(root, 1 << 30)
    assert before == (outside.read_bytes(), outside.stat().st_mtime_ns)


def open_files(root: Path) -> FileStore:
    return FileStore(root, capacity_bytes=1 << 20, floor_bytes=0, layout=LAYOUT)


def open_packed(root: Path) -> PackedStore:
    return PackedStore(root, SIZE, capacity_bytes=1 << 20, floor_bytes=0, layout=LAYOUT)


PLANTS = st.tuples(KINDS, damaged(SOUND, WORDS))


@settings(HOSTILE)
@given(plants=st.lists(st.tuples(FILE_NAMES, PLANTS), max_size=4), here=st.booleans())
@example(plants=[(NAMES[3].hex(), ("link", b""))], here=True)
@example(plants=[(NAMES[0].hex(), ("pipe", b""))], here=True)
@example(plants=[(NAMES[0].hex(), ("folder", b""))], here=True)
@example(plants=[(NAMES[0].hex(), ("hole", SOUND[0]))], here=True)
def test_any_folder_of_pages_is_used_or_passed_over(plants: list[tuple[str, tuple[str, bytes]]], here: bool) -> None:
    """Files, links, pipes and folders under any name, where the pages lie and beside them."""
    with TemporaryDirectory() as folder:
        root, outside = Path(folder) / "store", Path(folder) / "outside"
        outside.write_bytes(SECRET)
        store = open_files(root)
        put(store)
        shards = {name.hex(): Path(store._folder.page(name)).parent for name in NAMES}
        store.close()
        for name, (kind, raw) in plants:
            shard = shards.get(name, root / "pages" / "00") if here else root / "pages" / "1f"
            planted(shard / name, kind, raw, outside)
        used(open_files, root, outside)


@settings(HOSTILE)
@given(plants=st.lists(st.tuples(PACKED_NAMES, PLANTS), max_size=3), data=st.data())
def test_any_folder_of_segments_is_used_or_passed_over(
    plants: list[tuple[str, tuple[str, bytes]]], data: st.DataObject
) -> None:
    """Segments that were damaged, and everything else that can have such a name."""
    with TemporaryDirectory() as folder:
        root, outside = Path(folder) / "store", Path(folder) / "outside"
        outside.write_bytes(SECRET)
        store = open_packed(root)
        put(store)
        store.close()
        (segment,) = (root / "segments").glob("*.segment")
        segment.write_bytes(data.draw(damaged([segment.read_bytes()], WORDS)))
        for name, (kind, raw) in plants:
            if name.startswith("4096-") or kind != "file":
                planted(root / "segments" / name, kind, raw, outside)
        used(open_packed, root, outside)


@pytest.mark.parametrize("name", SEGMENT_NAMES)
def test_whatever_has_the_name_of_a_segment_is_passed_over(tmp_path: Path, name: str) -> None:
    """A link, a loop, a folder, a pipe, a socket, a terabyte of nothing."""
    outside = tmp_path / "outside"
    outside.write_bytes(SECRET)
    for kind in ("link", "loop", "folder", "pipe", "socket", "hole"):
        root = tmp_path / kind
        store = open_packed(root)
        put(store)
        store.close()
        planted(root / "segments" / name, kind, b"", outside)
        used(open_packed, root, outside)


BOOKS = (
    damaged([bytes(8), b"\xff" * 8])
    | damaged([b'{"a":"b"}', b"{}"], [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b"[1]", b"null"])
    | st.sampled_from([b"[" * 200_000, b'{"x":[1]}', b"[]", b'"x"', b'{"x":null}', b"\xff\xfe", b"1" * 10_000])
)


@settings(HOSTILE)
@given(raw=BOOKS, kind=st.sampled_from(["file", "link"]), packed=st.booleans())
def test_any_book_of_a_store_is_read_or_made_anew(raw: bytes, kind: str, packed: bool) -> None:
    """Size ledgers and the list of owners; where the ledger is a link, the store is refused."""
    with TemporaryDirectory() as folder:
        root, outside = Path(folder) / "store", Path(folder) / "outside"
        outside.write_bytes(SECRET)
        opener: Callable[[Path], Any] = open_packed if packed else open_files
        store = opener(root)
        put(store)
        store.close()
        for name in ("segments.owners", "segments.ledger") if packed else ("ledger",):
            planted(root / name, "file" if name == "segments.owners" else kind, raw, outside)
        if kind == "link":
            with pytest.raises(OSError, match="ledger"):
                opener(root)
            assert SECRET == outside.read_bytes()
        else:
            used(opener, root, outside)


@settings(HOSTILE)
@given(name=st.binary(max_size=200) | st.sampled_from([b"", b"../../outside", b"/etc/passwd", b"a\0b", b"x" * 4096]))
def test_no_name_leads_out_of_the_folder(folder_of_pages: Path, name: bytes) -> None:
    """Whatever a page is called: its path lies in a shard, and one that no page can have is a miss or is refused."""
    store = open_files(folder_of_pages)
    path = Path(os.path.normpath(store._folder.page(name)))
    verdicts: list[Verdict] = []

    assert path.is_relative_to(folder_of_pages / "pages")
    store.exists([name], lambda _i, verdict: verdicts.append(verdict) is None)
    store.get_into([name], [memoryview(bytearray(8))], lambda _i, verdict: verdicts.append(verdict) is None)
    assert Verdict.HIT not in verdicts
    if not 0 < len(name) <= 64:
        with pytest.raises(ValueError, match="object name of"):
            store.put([name], [memoryview(bytearray(8))], lambda *_: True)
    store.close()


@pytest.fixture(name="folder_of_pages", scope="module")
def _folder_of_pages() -> Path:
    return Path(mkdtemp())


def test_a_page_of_a_terabyte_is_listed_in_little_memory(tmp_path: Path) -> None:
    """What a header claims is read in pieces, and only as far as it can be right."""
    store = open_files(tmp_path)
    put(store)
    path = Path(store._folder.page(NAMES[0]))
    os.truncate(path, 1 << 40)
    with memory_within(MEMORY):
        found = {page.identity.name: page.verdict for page in list_pages(tmp_path) if page.identity is not None}
    assert [Verdict.HIT] * 4 == [found[name] for name in NAMES]
    store.close()
