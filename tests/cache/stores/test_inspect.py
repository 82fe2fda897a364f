"""People can see what lies in a directory, check it, and make it smaller."""

import os
from pathlib import Path

import pytest

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.folder import BLOCK_BYTES
from stagehold.cache.stores.inspect import collect, list_pages, verify_pages
from stagehold.cache.stores.packed import PackedStore
from stagehold.cache.stores.page import Layout
from stagehold.cache.stores.protocol import Verdict

SIZE = 1000
LAYOUT = Layout(component=2, tensor_rank=1, tensor_size=4)


def names(count):
    return [b"listed-%025d" % index for index in range(count)]


@pytest.fixture(params=["pages", "packed"])
def filled(request, tmp_path):
    """A directory with four pages of either form; yields (root, damage)."""
    if request.param == "pages":
        store = FileStore(tmp_path, floor_bytes=0, layout=LAYOUT)
    else:
        store = PackedStore(tmp_path, SIZE, capacity_bytes=1 << 20, floor_bytes=0, layout=LAYOUT)
    bodies = [memoryview(bytearray(name * 40)[:SIZE]) for name in names(4)]
    store.put(names(4), bodies, lambda *_: True)
    yield tmp_path, store.damage
    store.close()


def test_pages_are_listed_with_what_their_headers_say(filled):
    """Name, length and layout, each page verified."""
    found = list(list_pages(filled[0]))
    assert sorted(page.identity.name for page in found) == names(4)
    assert {(page.identity.body_bytes, page.identity.layout, page.verdict) for page in found} == {
        (SIZE, LAYOUT, Verdict.HIT)
    }


def test_damage_is_counted_by_its_kind(filled):
    """Verifying reads every byte and removes nothing."""
    root, damage = filled
    damage(names(1)[0], SIZE)
    assert verify_pages(root) == {Verdict.HIT: 3, Verdict.CORRUPT: 1}
    assert verify_pages(root) == {Verdict.HIT: 3, Verdict.CORRUPT: 1}


def test_a_file_that_is_no_page_is_listed_as_foreign(tmp_path):
    """What somebody else put there has a verdict and no identity."""
    store = FileStore(tmp_path, floor_bytes=0)
    store.put(names(1), [memoryview(bytes(SIZE))], lambda *_: True)
    (page,) = store.files()
    Path(page.path).write_bytes(b"letters home " * 99)
    (found,) = list_pages(tmp_path)
    assert (found.identity, found.verdict) == (None, Verdict.FOREIGN)
    store.close()


def test_collecting_brings_the_files_down_to_a_size(tmp_path):
    """The oldest go, and their number is told."""
    store = FileStore(tmp_path, floor_bytes=0)
    store.put(names(8), [memoryview(bytes(SIZE))] * 8, lambda *_: True)
    gone = collect(tmp_path, 4 * BLOCK_BYTES)
    assert len(store.files()) == 8 - gone <= 4
    store.close()


def packed(root, count, capacity=1 << 20):
    store = PackedStore(root, SIZE, capacity_bytes=capacity, floor_bytes=0)
    store.put(names(count), [memoryview(bytes(SIZE))] * count, lambda *_: True)
    return store


def on_disk(root):
    return sum(path.stat().st_size for path in (root / "segments").iterdir())


def test_collecting_removes_whole_segments(tmp_path):
    """Those of a handle that is gone, the oldest first, down to the size; what is left is found again."""
    packed(tmp_path, 100).close()
    segments = sorted((tmp_path / "segments").iterdir())
    for age, path in enumerate(segments):
        os.utime(path, ns=(age, age))
    each = segments[0].stat().st_size
    gone = collect(tmp_path, 2 * each)
    assert sorted((tmp_path / "segments").iterdir()) == segments[-2:]
    assert verify_pages(tmp_path) == {Verdict.HIT: 100 - gone}
    later = PackedStore(tmp_path, SIZE, capacity_bytes=3 * each, floor_bytes=0)
    later.put(names(200)[100:], [memoryview(bytes(SIZE))] * 100, lambda *_: True)
    assert on_disk(tmp_path) <= 3 * each
    later.close()


def test_collecting_leaves_the_segments_of_a_living_handle(tmp_path):
    """Its owner would write into a file that nobody can find."""
    store = packed(tmp_path, 100)
    assert collect(tmp_path, 1) == 0
    store.close()
    assert collect(tmp_path, 1) == 100
    assert on_disk(tmp_path) == 0


def test_a_handle_goes_on_when_segments_that_it_reads_are_collected(tmp_path):
    """What it knew there is a miss by its next look round, and its descriptors are given back."""
    writer = packed(tmp_path, 4)
    reader = PackedStore(tmp_path, SIZE, capacity_bytes=1 << 20, floor_bytes=0)
    seen = []
    reader.exists(names(4), lambda _, verdict: seen.append(verdict) or True)
    writer.close()
    for segment in reader._segments.values():
        assert not segment.owned
    collect(tmp_path, 1)
    reader.exists(names(5)[4:], lambda _, verdict: seen.append(verdict) or True)
    reader.exists(names(4), lambda _, verdict: seen.append(verdict) or True)
    assert seen == [Verdict.HIT] * 4 + [Verdict.MISS] * 5
    assert reader._segments == {}
    reader.close()


@pytest.mark.parametrize("look", [lambda root: list(list_pages(root)), lambda root: collect(root, 1)])
def test_a_directory_that_is_not_there_is_an_error_and_is_not_made(tmp_path, look):
    """A typing error in a path does not make a store."""
    with pytest.raises(FileNotFoundError, match="no such directory"):
        look(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
