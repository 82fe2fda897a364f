"""The delayed store: real files, and yet the same run each time."""

import random
import threading
import time

import pytest

from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.folder import BLOCK_BYTES
from stagehold.cache.stores.protocol import Store, Verdict
from stagehold.cache.stores.simulated import Delays
from stagehold.cache.stores.workers import WorkerStore

SIZE = 512


class Slow(FileStore):
    """A file store that takes a random time for each page, in wall time."""

    def _read(self, *arguments):
        time.sleep(random.uniform(0, 0.001))
        return super()._read(*arguments)

    def _write(self, *arguments):
        time.sleep(random.uniform(0, 0.001))
        return super()._write(*arguments)


def names(count, start=0):
    return [b"delayed-%024d" % index for index in range(start, start + count)]


def views(count, fill=0):
    return [memoryview(bytearray([fill] * SIZE)) for _ in range(count)]


@pytest.fixture
def make(tmp_path):
    """Build delayed stores over slow files, each in a directory of its own."""
    made = []

    def build(seed=1, delays=None, **options):
        blocking = Slow(tmp_path / str(len(made)), floor_bytes=0, **options)
        made.append(DelayedStore(WorkerStore(blocking, workers=3), seed, delays=delays))
        return made[-1]

    yield build
    for store in made:
        store.close()


def script(store):
    """Puts, lookups and reads that race for the same pages; returns all reports with their ticks, and the
    bytes.
    """
    plan, seen, outs = random.Random(5), [], []
    for tick in range(60):
        for part in range(3) if tick < 40 else ():
            ticket, keys = 10 * tick + part, names(plan.randint(1, 6), plan.randrange(20))
            kind = plan.choice(("exists", "get_into", "put"))
            if kind == "exists":
                store.exists(ticket, keys, tick)
            else:
                buffers = views(len(keys), 1 if kind == "put" else 0)
                outs += buffers
                getattr(store, kind)(ticket, keys, buffers, tick)
        seen += [(tick, progress) for progress in store.poll(tick)]
    assert store.in_flight() == []
    return seen, [bytes(view) for view in outs]


def test_it_is_a_store(make):
    """A delayed store satisfies the protocol."""
    assert isinstance(make(), Store)


def test_a_run_over_real_files_is_the_same_each_time(make):
    """Random wall times, three threads, one seed: the same progress in the same ticks."""
    first = script(make())
    assert first == script(make())
    assert {verdict for _, progress in first[0] for verdict in progress.verdicts} >= {
        Verdict.HIT,
        Verdict.STORED,
        Verdict.MISS,
    }


def test_a_run_with_evictions_is_the_same_each_time(make):
    """What a full store evicts does not depend on wall time either."""
    small = {"capacity_bytes": 9 * BLOCK_BYTES}
    assert script(make(**small)) == script(make(**small))


def test_another_seed_gives_another_run(make):
    """The seed draws the delays."""
    assert script(make(seed=1)) != script(make(seed=2))


def test_nothing_is_told_before_its_tick(make):
    """An operation that is long finished waits for its due tick."""
    store = make(delays=Delays(put=(4, 4)))
    store.put(1, names(2), views(2), 10)
    store.inner.wait(5)
    assert [store.poll(tick) for tick in (11, 12, 13)] == [[], [], []]
    assert [(p.ticket, p.done, p.good) for p in store.poll(14)] == [(1, True, 2)]


def test_a_due_operation_is_waited_for(make):
    """The poll of the due tick does not return without it, however slow the disk."""
    store, gate = make(delays=Delays(put=(1, 1))), threading.Event()
    store.inner.blocking._write = lambda *_: gate.wait(20) and Verdict.STORED
    store.put(1, names(1), views(1), 0)
    threading.Timer(0.02, gate.set).start()
    assert [p.ticket for p in store.poll(1)] == [1]


def test_a_get_comes_in_evenly(make):
    """A read of eight pages over four ticks has two more good pages in each."""
    store = make(delays=Delays(get=(4, 4), put=(1, 1)))
    store.put(1, names(8), views(8), 0)
    store.poll(1)
    store.get_into(2, names(8), views(8), 10)
    seen = [(p.good, p.done) for tick in range(11, 15) for p in store.poll(tick)]
    assert seen == [(2, False), (4, False), (6, False), (8, True)]


def test_a_store_that_breaks_its_deadline_is_an_error(make):
    """Beyond the patience the run stops, and says which operation it was."""
    store, gate = make(delays=Delays(put=(1, 1))), threading.Event()
    store._patience_seconds = 0.01
    store.inner.blocking._write = lambda *_: gate.wait(20) and Verdict.STORED
    store.put(7, names(1), views(1), 0)
    with pytest.raises(TimeoutError, match="ticket 7"):
        store.poll(1)
    gate.set()
