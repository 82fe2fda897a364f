"""The packed store: what the file store promises, with many pages to a file."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagehold.cache.stores.packed import PackedStore
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.segment import Segment, segment_bytes

SIZE = 4096
SMALL = 8 * segment_bytes(SIZE, 4)
"""A capacity of eight segments of four pages each."""


def names(count, start=0):
    return [b"packed-%025d" % index for index in range(start, start + count)]


def body(name, size=SIZE):
    return memoryview(bytearray((name * (size // len(name) + 1))[:size]))


def put(store, keys, size=SIZE):
    seen = []
    store.put(keys, [body(key, size) for key in keys], lambda _, verdict: seen.append(verdict) or True)
    return seen


def get(store, keys, size=SIZE):
    """Read page by page; a hit must have the right bytes."""
    seen = []
    for key in keys:
        out = memoryview(bytearray(size))
        store.get_into([key], [out], lambda _, verdict: seen.append(verdict) or True)
        assert seen[-1] is not Verdict.HIT or out == body(key, size)
    return seen


def exists(store, keys):
    seen = []
    store.exists(keys, lambda _, verdict: seen.append(verdict) or True)
    return seen


@pytest.fixture
def open_at():
    """Open packed stores with no floor of their own and close them at the end."""
    opened = []

    def build(root, **options):
        options.setdefault("floor_bytes", 0)
        options.setdefault("capacity_bytes", SMALL)
        opened.append(PackedStore(root, SIZE, **options))
        return opened[-1]

    yield build
    for store in opened:
        store.close()


def on_disk(root):
    return sum(path.stat().st_size for path in (root / "segments").iterdir())


@pytest.mark.parametrize("size", [0, 1, 1000, SIZE])
def test_what_was_put_comes_back(open_at, tmp_path, size):
    """Bodies up to the slot size make the round trip."""
    store = open_at(tmp_path)
    assert put(store, names(6), size) == [Verdict.STORED] * 6
    assert get(store, names(6), size) == [Verdict.HIT] * 6
    assert exists(store, names(7)) == [Verdict.HIT] * 6 + [Verdict.MISS]


def test_a_body_larger_than_a_slot_is_refused(open_at, tmp_path):
    """The page size of a packed store is a limit."""
    assert put(open_at(tmp_path), names(1), SIZE + 1) == [Verdict.REFUSED]


def test_the_disk_never_holds_more_than_the_capacity(open_at, tmp_path):
    """Whole segments within the limit, however many pages come; the newest pages are there."""
    store = open_at(tmp_path)
    for name in names(200):
        assert put(store, [name]) == [Verdict.STORED]
        assert on_disk(tmp_path) <= SMALL
    assert get(store, names(32, 168)) == [Verdict.HIT] * 32
    assert store.evicted_pages == 200 - 32


def test_the_page_used_longest_ago_goes_first(open_at, tmp_path):
    """A read renews, a lookup does not."""
    store = open_at(tmp_path)
    put(store, names(32))
    get(store, names(1))
    exists(store, names(2))
    put(store, names(1, 99))
    assert exists(store, names(3)) == [Verdict.HIT, Verdict.MISS, Verdict.HIT]


def test_a_new_start_finds_the_pages(open_at, tmp_path):
    """The index is rebuilt from the headers, and the segments are owned again."""
    store = open_at(tmp_path)
    put(store, names(9))
    store.close()
    other = open_at(tmp_path)
    assert get(other, names(9)) == [Verdict.HIT] * 9
    assert put(other, names(32, 50)) == [Verdict.STORED] * 32
    assert on_disk(tmp_path) <= SMALL


def test_two_handles_see_each_other(open_at, tmp_path):
    """At once, and also pages in slots that the other one has used again."""
    first, second = open_at(tmp_path), open_at(tmp_path)
    for start in range(0, 96, 8):
        put(first, names(8, start))
        assert get(second, names(8, start)) == [Verdict.HIT] * 8
    assert exists(second, names(8)) == [Verdict.MISS] * 8
    assert set(get(second, names(96))) == {Verdict.HIT, Verdict.MISS}
    assert second.alarms == {}


def owned(store):
    return sum(segment.owned for segment in store._segments.values())


def test_what_a_dead_handle_owned_is_taken_over_with_its_pages(open_at, tmp_path):
    """Nothing is taken from the living for it, and the least recently used of its pages go first."""
    first, living = open_at(tmp_path), open_at(tmp_path, capacity_bytes=SMALL)
    put(first, names(16))
    put(living, names(4, 200))
    for segment in first._segments.values():
        os.close(segment._descriptor)
    first._segments.clear()
    second = open_at(tmp_path)
    assert put(second, names(16, 50)) == [Verdict.STORED] * 16
    assert get(second, names(4, 200)) == [Verdict.HIT] * 4
    assert owned(living) == 1
    assert get(second, names(16, 50)) == [Verdict.HIT] * 16


def test_a_living_handle_takes_over_from_one_that_dies_beside_it(open_at, tmp_path):
    """It finds out when it needs room; the pages of the dead one become its own, the newest."""
    living, dying = open_at(tmp_path), open_at(tmp_path)
    put(living, names(24))
    put(dying, names(8, 100))
    assert (owned(living), owned(dying)) == (6, 2)
    dying.close()
    put(living, names(8, 200))
    assert owned(living) == 8
    assert get(living, names(16, 8)) == [Verdict.HIT] * 16
    assert get(living, names(8, 100)) == [Verdict.HIT] * 8
    assert living.evicted_pages == 8


def test_handles_share_a_capacity_evenly(open_at, tmp_path):
    """One that comes when everything is taken gets its part from whoever has most, and no more than that."""
    first = open_at(tmp_path)
    put(first, names(32))
    assert owned(first) == 8
    second, third = open_at(tmp_path), open_at(tmp_path)
    for start in range(0, 400, 8):
        assert put(second, names(8, 1000 + start)) == [Verdict.STORED] * 8
        assert put(third, names(8, 2000 + start)) == [Verdict.STORED] * 8
        assert on_disk(tmp_path) <= SMALL
    put(first, names(1))
    assert sorted(map(owned, (first, second, third))) == [2, 3, 3]
    for start in range(0, 400, 8):
        for store in (first, second, third):
            put(store, names(8, 3000 + start))
    assert sorted(map(owned, (first, second, third))) == [2, 3, 3]


def test_pages_in_a_segment_that_was_taken_away_are_plain_misses(open_at, tmp_path):
    """Its former owner looks once for each call; no page of it is claimed, alarmed about, or written to."""
    first, second = open_at(tmp_path), open_at(tmp_path)
    put(first, names(32))
    put(second, names(1, 99))
    held = exists(first, names(32))
    assert held.count(Verdict.MISS) == 4
    assert get(first, names(32)) == held
    assert put(first, names(32)) == [Verdict.STORED] * 32
    assert first.alarms == second.alarms == {}
    assert get(second, names(1, 99)) == [Verdict.HIT]
    assert owned(first) == 7


def test_a_segment_may_be_taken_away_in_the_middle_of_a_call(open_at, tmp_path, monkeypatch):
    """A write into it is no page that was stored; a read of it is a miss."""
    first = open_at(tmp_path)
    put(first, names(31))
    write, read = Segment.write, Segment.read

    def robbed(call):
        def act(segment, *arguments):
            monkeypatch.undo()
            thief = Segment(segment.path)
            thief.remove()
            thief.close()
            return call(segment, *arguments)

        return act

    monkeypatch.setattr(Segment, "write", robbed(write))
    assert put(first, names(1, 500)) == [Verdict.REFUSED]
    assert exists(first, names(1, 500)) == [Verdict.MISS]
    victim = next(iter(first._own))
    monkeypatch.setattr(Segment, "read", robbed(read))
    assert get(first, [victim]) == [Verdict.MISS]
    assert first.alarms == {}


def test_a_slot_that_is_being_read_is_not_used_again(open_at, tmp_path, monkeypatch):
    """While a thread reads a page, so many others come that its slot would be next."""
    store = open_at(tmp_path)
    put(store, names(32))
    read = Segment.read

    def read_slowly(segment, *arguments):
        monkeypatch.setattr(Segment, "read", read)
        put(store, names(33, 50))
        return read(segment, *arguments)

    monkeypatch.setattr(Segment, "read", read_slowly)
    assert get(store, names(1)) == [Verdict.HIT]
    assert store.alarms == {}


def test_a_write_that_breaks_off_leaves_an_empty_slot(open_at, tmp_path, monkeypatch):
    """Between body and header of a reused slot there is no page, neither the old one nor the new."""
    store = open_at(tmp_path)
    put(store, names(32))
    oldest = store._own[names(1)[0]]
    write = os.pwrite

    def break_off(descriptor, raw, place):
        if any(raw):
            raise OSError(errno.EIO, "the cable came off")
        return write(descriptor, raw, place)

    monkeypatch.setattr(os, "pwrite", break_off)
    with pytest.raises(OSError, match="cable"):
        put(store, names(1, 99))
    assert not oldest.segment.holds(oldest.slot, names(1)[0])
    assert not oldest.segment.holds(oldest.slot, names(1, 99)[0])
    assert store._free == [oldest]


@pytest.mark.parametrize(
    ("place", "verdict"),
    [("body", Verdict.CORRUPT), ("checksum", Verdict.CORRUPT), ("length", Verdict.FOREIGN)],
)
def test_a_damaged_slot_is_a_miss_with_its_reason(open_at, tmp_path, place, verdict):
    """A flipped bit is named once, then the page is gone and can be written again."""
    store = open_at(tmp_path)
    put(store, names(1))
    where = store._own[names(1)[0]]
    path = Path(where.segment.path)
    raw = bytearray(path.read_bytes())
    start = where.slot * HEADER_BYTES
    offset = {"body": where.segment._first_body + where.slot * SIZE + 7, "checksum": start + 250, "length": start + 22}
    raw[offset[place]] ^= 1
    with path.open("r+b") as file:
        file.write(raw)
    assert get(store, names(1)) == [verdict]
    assert get(store, names(1)) == [Verdict.MISS]
    assert put(store, names(1)) == [Verdict.STORED]
    assert get(store, names(1)) == [Verdict.HIT]


def in_process(function, *arguments):
    """Start a function of this file in a process of its own."""
    code = f"import runpy, sys; runpy.run_path(sys.argv[1])[{function.__name__!r}](*sys.argv[2:])"
    command = [sys.executable, "-c", code, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def write_for_ever(root):
    """Put pages into a small store and print each acknowledgement, until killed."""
    store = PackedStore(root, SIZE, capacity_bytes=SMALL, floor_bytes=0)
    for index in range(1_000_000):
        put(store, names(1, index))
        os.write(1, b"%d\n" % index)


def test_kill_while_writing_leaves_no_wrong_page(open_at, tmp_path):
    """After a kill in the middle of reused slots, the newest acknowledged pages are right and none is
    wrong.
    """
    for run in range(4):
        process = in_process(write_for_ever, tmp_path)
        for _ in range(150 + 17 * run):
            process.stdout.readline()
        process.kill()
        last = 149 + 17 * run + len(process.communicate()[0].splitlines())
        store = open_at(tmp_path)
        assert get(store, names(16, last - 16)) == [Verdict.HIT] * 16
        assert set(get(store, names(40, last - 31))) <= {Verdict.HIT, Verdict.MISS, Verdict.CORRUPT}
        store.close()


def hammer(root, seed):
    """Write and read the same keys as everybody else; print the verdicts that occurred."""
    store = PackedStore(root, SIZE, capacity_bytes=SMALL, floor_bytes=0)
    seen = set()
    for index in range(200):
        keys = names(1, (index * 7 + int(seed) * 3) % 48)
        seen.update(put(store, keys) + get(store, keys))
    store.close()
    os.write(1, b" ".join(b"%d" % verdict for verdict in seen))


def test_four_processes_may_write_the_same_keys(open_at, tmp_path):
    """Hits are right; a process that found no room is refused, and nothing is wrong."""
    workers = [in_process(hammer, tmp_path, seed) for seed in range(4)]
    seen = {Verdict(int(word)) for worker in workers for word in worker.communicate(timeout=60)[0].split()}
    assert [worker.returncode for worker in workers] == [0] * 4
    assert {Verdict.HIT, Verdict.STORED} <= seen
    assert seen <= {Verdict.HIT, Verdict.STORED, Verdict.MISS, Verdict.REFUSED}
    assert on_disk(tmp_path) <= SMALL


def test_a_disk_without_room_for_a_segment_refuses(tmp_path):
    """A limit on the file size, as a full disk, makes no segment and leaves nothing behind."""
    code = """
import resource, sys
sys.path[:0] = {path!r}
from stagehold.cache.stores.packed import PackedStore
store = PackedStore({root!r}, 4096, floor_bytes=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
store.put([b"x" * 32], [memoryview(bytes(4096))], lambda _, verdict: print(verdict.name))
"""
    code = code.format(path=sys.path, root=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["REFUSED"]
    assert on_disk(tmp_path) == 0


def test_a_floor_above_the_free_space_refuses(open_at, tmp_path):
    """No segment is made where the disk is too full."""
    assert put(open_at(tmp_path, floor_bytes=1 << 60), names(1)) == [Verdict.REFUSED]


def test_a_capacity_below_one_page_is_refused(tmp_path):
    """The message says what one page takes."""
    with pytest.raises(ValueError, match="a segment of one page takes 8192"):
        PackedStore(tmp_path, SIZE, capacity_bytes=SIZE)
