"""K107: the file tier never deleted anything, or lost count of what it had after a crash.

Here pages are evicted in the order of their use, and the count is a shortcut that every start sets right from what
lies on the disk: a crash can make it too high for a while, never too low for long.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.folder import BLOCK_BYTES
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Verdict

SIZE = BLOCK_BYTES - HEADER_BYTES
CAPACITY = 16 * BLOCK_BYTES


def names(count, start=0):
    return [b"tier-%027d" % index for index in range(start, start + count)]


def put(store, keys):
    seen = []
    store.put(keys, [memoryview(bytes(SIZE))] * len(keys), lambda _, verdict: seen.append(verdict) or True)
    return seen


def present(store, keys):
    seen = []
    store.exists(keys, lambda _, verdict: seen.append(verdict is Verdict.HIT) or True)
    return seen


def on_disk(store):
    return sum(found.size_bytes for found in store.files())


def test_it_deletes_what_was_used_longest_ago(tmp_path):
    """Twenty-five times the capacity comes by: what is left is the newest, all of it and nothing else."""
    store = FileStore(tmp_path, capacity_bytes=CAPACITY, floor_bytes=0)
    assert set(put(store, names(400))) == {Verdict.STORED}
    found = present(store, names(400))
    first = found.index(True)
    assert found[first:] == [True] * (400 - first)
    assert 16 >= 400 - first > 12
    store.close()


@pytest.mark.parametrize("count", [b"", b"\x00" * 8, b"\xff" * 8, (1 << 30).to_bytes(8, "little"), b"junk"])
def test_a_count_that_is_wrong_is_set_right_by_the_next_start(tmp_path, count):
    """Torn, zero, far too high: the directory is what counts, and the limit holds."""
    store = FileStore(tmp_path, capacity_bytes=CAPACITY, floor_bytes=0)
    put(store, names(10))
    store.close()
    (tmp_path / "ledger").write_bytes(count)
    later = FileStore(tmp_path, capacity_bytes=CAPACITY, floor_bytes=0)
    assert later.used_bytes == on_disk(later) == 10 * BLOCK_BYTES
    put(later, names(40, 100))
    assert later.used_bytes == on_disk(later) <= CAPACITY
    later.close()


def test_a_count_that_is_too_high_is_set_right_before_anything_is_refused(tmp_path):
    """What a dead process had reserved is found out when the room seems to be used up, without a restart."""
    store = FileStore(tmp_path, capacity_bytes=CAPACITY, floor_bytes=0)
    store._ledger.add(CAPACITY)
    assert put(store, names(10)) == [Verdict.STORED] * 10
    assert store.evicted_pages == 0
    assert store.used_bytes == on_disk(store) == 10 * BLOCK_BYTES
    store.close()
