"""The file store: whatever happens to the files, a page is right or it is a miss with its reason."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stagehold.cache.stores.files import FileStore, default_floor
from stagehold.cache.stores.folder import BLOCK_BYTES, disk_bytes
from stagehold.cache.stores.page import HEADER_BYTES, Layout
from stagehold.cache.stores.protocol import Verdict

SIZE = BLOCK_BYTES - HEADER_BYTES  # so that one page takes exactly one block


def names(count, start=0):
    return [b"object-%025d" % index for index in range(start, start + count)]


def body(name, size=SIZE):
    """The one right content of a page, from its name."""
    return memoryview(bytearray((name * (size // len(name) + 1))[:size]))


def put(store, keys, size=SIZE):
    seen = []
    store.put(keys, [body(key, size) for key in keys], lambda _, verdict: seen.append(verdict) or True)
    return seen


def get(store, keys, size=SIZE):
    """Read page by page, so that each has its verdict; a hit must have the right bytes."""
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
    """Open file stores with no floor of their own and close them at the end."""
    opened = []

    def build(root, **options):
        options.setdefault("floor_bytes", 0)
        opened.append(FileStore(root, **options))
        return opened[-1]

    yield build
    for store in opened:
        store.close()


@pytest.fixture
def store(open_at, tmp_path):
    return open_at(tmp_path / "store")


def being_written(root):
    return [path for path in root.rglob("*") if path.name.startswith(".new-")]


def path_of(store, name):
    return Path(store._folder.page(name))


@pytest.mark.parametrize("size", [0, 1, 1000, SIZE, 1 << 17])
def test_what_was_put_comes_back(store, size):
    """Pages of any length make the round trip."""
    assert put(store, names(3), size) == [Verdict.STORED] * 3
    assert get(store, names(3), size) == [Verdict.HIT] * 3


def test_exists_tells_present_from_absent(store):
    """Presence is what a get would find."""
    put(store, names(1))
    assert exists(store, names(2)) == [Verdict.HIT, Verdict.MISS]


def test_a_second_store_on_the_directory_sees_the_pages(store, open_at):
    """The directory is the index; nothing is kept in the process."""
    put(store, names(2))
    other = open_at(store._folder.root)
    assert get(other, names(2)) == [Verdict.HIT] * 2
    assert other.used_bytes == 2 * BLOCK_BYTES


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (lambda raw: b"", Verdict.TORN),
        (lambda raw: raw[:100], Verdict.TORN),
        (lambda raw: raw[:-1], Verdict.TORN),
        (lambda raw: bytes(len(raw)), Verdict.TORN),
        (lambda raw: raw[:-9] + bytes([raw[-9] ^ 4]) + raw[-8:], Verdict.CORRUPT),
        (lambda raw: raw[:HEADER_BYTES] + bytes(len(raw) - HEADER_BYTES), Verdict.CORRUPT),
        (lambda raw: b"somebody else's file" * 300, Verdict.FOREIGN),
    ],
)
def test_a_damaged_file_is_a_miss_with_its_reason(store, damage, verdict):
    """Truncated, zeroed, flipped, foreign: named once, counted as an alarm, then simply gone."""
    put(store, names(1))
    path = path_of(store, names(1)[0])
    path.write_bytes(damage(path.read_bytes()))
    assert get(store, names(1)) == [verdict]
    assert store.alarms == {verdict: 1}
    assert get(store, names(1)) == [Verdict.MISS]
    assert put(store, names(1)) == [Verdict.STORED]
    assert get(store, names(1)) == [Verdict.HIT]


def test_a_renamed_file_is_foreign(store):
    """Good bytes in the wrong place are not a hit."""
    first, second = names(2)
    put(store, names(2))
    shutil.copy(path_of(store, first), path_of(store, second))
    assert get(store, [second]) == [Verdict.FOREIGN]


def test_a_page_of_another_rank_is_foreign(store, open_at):
    """Rank coordinates are part of what a page is."""
    put(store, names(1))
    other = open_at(store._folder.root, layout=Layout(tensor_rank=1, tensor_size=2))
    assert get(other, names(1)) == [Verdict.FOREIGN]


def test_a_put_heals_a_file_of_the_wrong_length(store):
    """What a power loss left empty does not keep the page out."""
    put(store, names(1))
    path_of(store, names(1)[0]).write_bytes(b"")
    assert put(store, names(1)) == [Verdict.STORED]
    assert get(store, names(1)) == [Verdict.HIT]


def test_capacity_limits_what_is_on_the_disk(open_at, tmp_path):
    """At no time do the page files take more than the capacity."""
    store = open_at(tmp_path, capacity_bytes=10 * BLOCK_BYTES)
    for name in names(50):
        assert put(store, [name]) == [Verdict.STORED]
        on_disk = sum(found.size_bytes for found in store.files())
        assert on_disk == store.used_bytes <= 10 * BLOCK_BYTES
    assert store.evicted_pages == 50 - len(store.files())


def test_the_least_recently_used_page_goes_first(open_at, tmp_path):
    """A page that was read outlives one that was not; asking whether it exists renews nothing."""
    store = open_at(tmp_path, capacity_bytes=4 * BLOCK_BYTES)
    put(store, names(4))
    get(store, names(1))
    exists(store, names(2))
    put(store, names(1, 4))
    assert exists(store, names(2)) == [Verdict.HIT, Verdict.MISS]


def test_a_page_larger_than_the_capacity_is_refused(open_at, tmp_path):
    """It can never fit, so nothing is evicted for it."""
    store = open_at(tmp_path, capacity_bytes=2 * BLOCK_BYTES)
    put(store, names(2))
    assert put(store, names(1, 9), 3 * BLOCK_BYTES) == [Verdict.REFUSED]
    assert get(store, names(2)) == [Verdict.HIT] * 2


def test_capacity_holds_at_the_next_start(store, open_at):
    """A smaller capacity than what lies there is met by evicting at start."""
    put(store, names(8))
    other = open_at(store._folder.root, capacity_bytes=4 * BLOCK_BYTES)
    assert other.used_bytes == sum(found.size_bytes for found in other.files()) <= 4 * BLOCK_BYTES


def test_two_stores_share_one_capacity(open_at, tmp_path):
    """What another process wrote counts."""
    stores = [open_at(tmp_path, capacity_bytes=8 * BLOCK_BYTES) for _ in range(2)]
    for index, name in enumerate(names(40)):
        put(stores[index % 2], [name])
        assert sum(found.size_bytes for found in stores[0].files()) <= 8 * BLOCK_BYTES


def test_the_free_space_floor_refuses_a_full_disk(open_at, tmp_path):
    """A floor above the free space leaves no room at all."""
    store = open_at(tmp_path, floor_bytes=1 << 60)
    assert put(store, names(1)) == [Verdict.REFUSED]
    assert store.files() == []
    assert being_written(tmp_path) == []


def test_a_disk_under_its_floor_gives_our_pages_back(store, open_at):
    """Where the disk is too full, cached pages are what goes."""
    put(store, names(4))
    other = open_at(store._folder.root, floor_bytes=1 << 60)
    assert other.files() == []


def test_a_store_has_a_floor_unless_told_otherwise(tmp_path):
    """The default leaves free space; a store never fills a node."""
    assert default_floor(tmp_path) > 0


def test_a_short_write_is_refused_and_leaves_nothing(tmp_path):
    """A limit on the file size shortens the write, as a full disk does, and the page is not acknowledged."""
    code = """
import resource, sys
sys.path[:0] = {path!r}
from stagehold.cache.stores.files import FileStore
store = FileStore({root!r}, floor_bytes=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
store.put([b"x" * 32], [memoryview(bytes(20_000))], lambda _, verdict: print(verdict.name))
print(len(store.files()), store.used_bytes)
"""
    code = code.format(path=sys.path, root=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["REFUSED", "0", "0"]
    assert being_written(tmp_path) == []


def test_a_disk_that_others_filled_refuses_pages(small_disk, open_at):
    """With all our own pages given up there is still no room: refused, and nothing is left over."""
    store = open_at(small_disk.root)
    put(store, names(8), 1 << 16)
    small_disk.fill_up()
    assert put(store, names(1, 99), 1 << 21) == [Verdict.REFUSED]
    assert being_written(small_disk.root) == []
    assert store.used_bytes == sum(found.size_bytes for found in store.files())


def test_a_disk_that_fills_up_meanwhile_refuses_pages(small_disk, open_at, monkeypatch):
    """The write itself is what finds the disk full, whatever was said of its free space before."""
    store = open_at(small_disk.root)
    put(store, names(8), 1 << 16)
    small_disk.fill_up()
    monkeypatch.setattr(store, "_missing_bytes", lambda _size: -1)
    assert put(store, names(4, 99), 1 << 16) == [Verdict.REFUSED] * 4
    assert get(store, names(8), 1 << 16) == [Verdict.HIT] * 8
    assert being_written(small_disk.root) == []
    assert store.used_bytes == sum(found.size_bytes for found in store.files())


def test_a_small_disk_is_kept_above_its_floor(small_disk, open_at):
    """With a floor the oldest pages make room for new ones instead."""
    store = open_at(small_disk.root, floor_bytes=1 << 20)
    for name in names(48):
        assert put(store, [name], 1 << 16) == [Verdict.STORED]
        disk = os.statvfs(small_disk.root)
        assert disk.f_bavail * disk.f_frsize >= 1 << 20
    assert get(store, names(4, 44), 1 << 16) == [Verdict.HIT] * 4


def in_process(function, *arguments):
    """Start a function of this file in a process of its own."""
    code = f"import runpy, sys; runpy.run_path(sys.argv[1])[{function.__name__!r}](*sys.argv[2:])"
    command = [sys.executable, "-c", code, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def write_for_ever(root):
    """Put pages and print each acknowledgement, until killed."""
    store = FileStore(root, floor_bytes=0)
    for index in range(100_000):
        put(store, names(1, index), 1 << 16)
        os.write(1, b"%d\n" % index)


def test_kill_while_writing_leaves_no_wrong_page(open_at, tmp_path):
    """After a kill, acknowledged pages are right, no other page is wrong, and the leftovers are swept."""
    for run in range(4):
        process = in_process(write_for_ever, tmp_path)
        for _ in range(60 + 17 * run):
            process.stdout.readline()
        process.kill()
        acknowledged = 60 + 17 * run + len(process.communicate()[0].splitlines())
        store = open_at(tmp_path)
        assert get(store, names(acknowledged), 1 << 16) == [Verdict.HIT] * acknowledged
        assert set(get(store, names(200, acknowledged), 1 << 16)) <= {Verdict.HIT, Verdict.MISS}
        assert being_written(tmp_path) == []
        assert store.used_bytes == sum(found.size_bytes for found in store.files())


def test_leftovers_of_the_dead_are_swept_and_of_the_living_kept(store, open_at):
    """A temporary file of a process that is gone is removed at the next start; ours stays and is counted."""
    folder = store._folder
    put(store, names(1))
    page = folder.page(names(1)[0])
    mine = Path(folder.temp(page, 100))
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    theirs = Path(folder.temp(page, 100).replace(f"-{os.getpid()}-", f"-{int(dead.stdout)}-"))
    stray = mine.with_name(".new-nobody-knows-what")
    for path in (mine, theirs, stray):
        path.write_bytes(b"half a page")
    other = open_at(folder.root)
    assert being_written(folder.root) == [mine]
    assert other.used_bytes == disk_bytes(100) + BLOCK_BYTES


def hammer(root, seed):
    """Write and read the same few keys as everybody else; print the verdicts that occurred."""
    store = FileStore(root, capacity_bytes=12 * disk_bytes(HEADER_BYTES + (1 << 14)), floor_bytes=0)
    seen = set()
    for index in range(150):
        keys = names(1, (index * 7 + int(seed) * 3) % 24)
        seen.update(put(store, keys, 1 << 14) + get(store, keys, 1 << 14))
    store.close()
    os.write(1, b" ".join(b"%d" % verdict for verdict in seen))


def test_four_processes_may_write_the_same_keys(open_at, tmp_path):
    """Races for one key under a capacity that evicts give hits with the right bytes, or plain misses."""
    workers = [in_process(hammer, tmp_path, seed) for seed in range(4)]
    seen = {Verdict(int(word)) for worker in workers for word in worker.communicate(timeout=60)[0].split()}
    assert [worker.returncode for worker in workers] == [0] * 4
    assert seen <= {Verdict.HIT, Verdict.STORED, Verdict.MISS}
    store = open_at(tmp_path)
    assert store.used_bytes == sum(found.size_bytes for found in store.files())


def test_closing_leaves_no_descriptor(tmp_path):
    """Opening, using and closing twenty stores leaves the descriptors as they were."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        store = FileStore(tmp_path, floor_bytes=0)
        put(store, names(2))
        get(store, names(3))
        store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_capacity_of_nothing_is_refused(tmp_path):
    """Zero bytes is a mistake, not a store."""
    with pytest.raises(ValueError, match="expected a positive number"):
        FileStore(tmp_path, capacity_bytes=0)
