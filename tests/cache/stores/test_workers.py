"""The worker store: bounded threads around an engine that blocks."""

import threading
from pathlib import Path

import pytest

from stagehold.cache.stores.protocol import Store, Verdict
from stagehold.cache.stores.workers import AGEING_PAGES, WorkerStore

LONG = 20.0


class Shelf:
    """A blocking engine in memory, with a gate that holds it between pages and a diary of what it did."""

    name = "shelf"

    def __init__(self):
        self.pages = {}
        self.diary = []
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self.closed = False

    def _each(self, kind, keys, on_page, act):
        self.diary.append((kind, len(keys)))
        for index, key in enumerate(keys):
            self.inside.set()
            self.gate.wait(LONG)
            if not on_page(index, act(index, key)):
                return

    def exists(self, keys, on_page):
        self._each("exists", keys, on_page, lambda _, k: Verdict.HIT if k in self.pages else Verdict.MISS)

    def get_into(self, keys, buffers, on_page):
        def read(index, key):
            if key == b"explode":
                raise OSError("the disk is on fire")
            if key not in self.pages:
                return Verdict.MISS
            buffers[index][:] = self.pages[key]
            return Verdict.HIT

        self._each("get", keys, on_page, read)

    def put(self, keys, buffers, on_page):
        def write(index, key):
            self.pages[key] = bytes(buffers[index])
            return Verdict.STORED

        self._each("put", keys, on_page, write)

    def close(self):
        self.closed = True


class Clock:
    """Wall time that moves when the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def views(count, fill=0):
    return [memoryview(bytearray([fill] * 8)) for _ in range(count)]


def keys(count):
    return [b"key-%d" % index for index in range(count)]


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def drain(store, *tickets):
    """Wait until all `tickets` are done; return every report in the order of arrival."""
    seen, missing = [], set(tickets)
    while missing:
        store.wait(LONG)
        reports = store.poll(0)
        assert reports, f"nothing moved in {LONG} s; missing {missing}"
        seen += reports
        missing -= {report.ticket for report in reports if report.done}
    return seen


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def make(shelf):
    """Build worker stores and close them, so that a failed test leaves no thread."""
    made = []

    def build(**options):
        made.append(WorkerStore(shelf, **options))
        return made[-1]

    yield build
    shelf.gate.set()
    for store in made:
        store.close()
        for thread in store._threads:
            thread.join(LONG)


def test_it_is_a_store(make):
    """A worker store satisfies the protocol."""
    assert isinstance(make(), Store)


def test_what_was_put_comes_back(make):
    """A round trip through the threads."""
    store, out = make(), views(3)
    store.put(1, keys(3), views(3, 7), 0)
    drain(store, 1)
    store.get_into(2, keys(3), out, 0)
    assert drain(store, 2)[-1].verdicts == (Verdict.HIT,) * 3
    assert out == views(3, 7)


def test_an_exception_becomes_a_verdict(make, shelf):
    """The page that raised is FAILED, the ones before it stand, and the message is kept."""
    shelf.pages[b"key-0"] = bytes(8)
    store = make()
    store.get_into(1, [b"key-0", b"explode", b"key-1"], views(3), 0)
    assert drain(store, 1)[-1].verdicts == (Verdict.HIT, Verdict.FAILED, Verdict.UNREAD)
    assert list(store.errors) == ["get: OSError: the disk is on fire"]


def test_a_thread_survives_an_exception(make):
    """The next operation on the same thread runs."""
    store = make(workers=1)
    store.get_into(1, [b"explode"], views(1), 0)
    store.put(2, keys(1), views(1), 0)
    assert drain(store, 1, 2)[-1].verdicts == (Verdict.STORED,)


def test_completions_come_in_ticket_order(make):
    """Whatever ended first, one poll lists ascending tickets."""
    store = make(workers=2)
    for ticket in (5, 3, 9, 1):
        store.exists(ticket, keys(2), 0)
    with store._changed:
        assert store._changed.wait_for(lambda: len(store._moved) == 4, LONG)
    assert [report.ticket for report in store.poll(0)] == [1, 3, 5, 9]


def test_small_operations_go_before_a_large_one(make, shelf):
    """While the only thread is busy, a small get overtakes a large one that came earlier."""
    store = hold(make, shelf)
    store.get_into(2, keys(64), views(64), 0)
    store.get_into(3, keys(1), views(1), 0)
    shelf.gate.set()
    drain(store, 1, 2, 3)
    assert shelf.diary == [("exists", 1), ("get", 1), ("get", 64)]


def test_a_large_operation_is_passed_a_bounded_number_of_times(make, shelf):
    """Ageing: an operation of n pages lets fewer than n / AGEING_PAGES + 1 later ones pass."""
    store = hold(make, shelf)
    store.put(2, keys(32), views(32), 0)
    for ticket in range(3, 20):
        store.put(ticket, keys(1), views(1), 0)
    shelf.gate.set()
    drain(store, *range(1, 20))
    assert shelf.diary.index(("put", 32)) <= 1 + 32 // AGEING_PAGES


def hold(make, shelf, **options):
    """A store of one thread that stands inside operation 1."""
    store = make(workers=1, **options)
    shelf.gate.clear()
    store.exists(1, [b"x"], 0)
    assert shelf.inside.wait(LONG)
    return store


def test_good_pages_are_reported_before_the_end(make, shelf):
    """A get that stands still after its first page has one good page and is not done."""
    shelf.pages.update({key: bytes(8) for key in keys(2)})
    store = make(workers=1)
    inner = shelf._each

    def stop_at_second(kind, names, on_page, act):
        def tell(index, verdict):
            going = on_page(index, verdict)
            shelf.gate.clear()
            return going

        inner(kind, names, tell, act)

    shelf._each = stop_at_second
    store.get_into(1, keys(2), views(2), 0)
    with store._changed:
        while not store._moved:
            store._changed.wait(0.001)
    (report,) = store.poll(0)
    assert (report.good, report.done) == (1, False)
    shelf.gate.set()
    drain(store, 1)


def test_a_queued_operation_times_out_without_a_thread(make, shelf):
    """The deadline of an operation that nobody started needs no thread to come free."""
    clock = Clock()
    store = hold(make, shelf, deadline_seconds=5, clock=clock)
    store.get_into(2, keys(2), views(2), 0)
    clock.now = 6.0
    (report,) = store.poll(0)
    assert (report.ticket, report.done, report.good) == (2, True, 0)
    assert report.verdicts == (Verdict.TIMED_OUT, Verdict.UNREAD)


def test_a_buffer_in_use_is_not_given_back_by_the_deadline(make, shelf):
    """An operation inside a page is done when the engine says so, and its later pages are TIMED_OUT."""
    clock = Clock()
    store = make(workers=1, deadline_seconds=5, clock=clock)
    shelf.gate.clear()
    store.put(1, keys(3), views(3), 0)
    assert shelf.inside.wait(LONG)
    clock.now = 6.0
    assert store.poll(0) == []
    shelf.gate.set()
    assert drain(store, 1)[-1].verdicts == (Verdict.STORED, Verdict.TIMED_OUT, Verdict.TIMED_OUT)


def test_closing_leaves_no_thread_and_no_descriptor(shelf):
    """Twenty stores opened and closed, with work queued, leave threads and descriptors as they were."""
    threads, descriptors = threading.active_count(), open_descriptors()
    for _ in range(20):
        store = WorkerStore(shelf, workers=3)
        for ticket in range(8):
            store.put(ticket, keys(4), views(4), 0)
        store.close()
        store.close()
    assert shelf.closed
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


def test_a_closed_store_takes_nothing(make):
    """New work after the close is an error of the caller."""
    store = make()
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.exists(1, keys(1), 0)


def test_a_call_that_never_comes_back_does_not_hang_the_close(make, shelf):
    """The close gives up after the deadline, says so, and leaves the engine open."""
    store = make(workers=1, deadline_seconds=0.05)
    shelf.gate.clear()
    store.exists(1, [b"x"], 0)
    assert shelf.inside.wait(LONG)
    store.close()
    assert "did not come back" in store.errors[-1]
    assert not shelf.closed


def test_an_engine_that_says_too_little_is_answered_for(make, shelf):
    """Keys that the engine never mentioned are FAILED, not open for ever."""
    shelf.exists = lambda _keys, _on_page: None
    store = make()
    store.exists(1, keys(2), 0)
    assert drain(store, 1)[-1].verdicts == (Verdict.FAILED, Verdict.FAILED)
