"""People can see what lies in a directory, check it, and make it smaller."""

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


@pytest.mark.parametrize("look", [lambda root: list(list_pages(root)), lambda root: collect(root, 1)])
def test_a_directory_that_is_not_there_is_an_error_and_is_not_made(tmp_path, look):
    """A typing error in a path does not make a store."""
    with pytest.raises(FileNotFoundError, match="no such directory"):
        look(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
