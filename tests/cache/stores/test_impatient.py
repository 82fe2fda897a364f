"""Calls that may hang are made by helpers, and their callers go on."""

import threading

import pytest

from stagehold.cache.stores.impatient import STUCK_MOST, Impatient, StuckError
from stagehold.cache.stores.objects import BATCH_PAGES, ObjectStore
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.workers import WorkerStore

LONG = 20.0
SIZE = 64


@pytest.fixture
def gate():
    """An event that hanging calls wait for; it is set at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def impatient(gate):
    made = Impatient("a client")
    yield made
    gate.set()
    made.close()


def hang(impatient, gate, count=1):
    for _ in range(count):
        with pytest.raises(TimeoutError, match="a client did not answer"):
            impatient.call(lambda: gate.wait(LONG), 0.01)


def let_go(impatient, gate):
    """Let all calls that hang come back, and wait until they are known to have."""
    gate.set()
    while impatient.stuck:
        threading.Event().wait(0.001)


def test_an_answer_comes_back(impatient):
    """And one thread makes all calls of one caller."""
    threads = {impatient.call(threading.get_ident, LONG) for _ in range(5)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_an_error_comes_back(impatient):
    """As if it had been raised here, even one about time."""
    for error in (OSError("no"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            impatient.call(lambda error=error: (_ for _ in ()).throw(error), LONG)
    assert impatient.stuck == 0


def test_a_call_that_hangs_is_left_behind(impatient, gate):
    """The next call is made by another helper; when the first comes back it is no longer counted."""
    hang(impatient, gate)
    assert impatient.stuck == 1
    assert impatient.call(lambda: 7, LONG) == 7
    let_go(impatient, gate)
    assert impatient.close()


def test_calls_that_hang_are_limited(impatient, gate):
    """What they hold stays held, so that no more are made until one is back."""
    hang(impatient, gate, STUCK_MOST)
    with pytest.raises(StuckError, match="have not come back"):
        impatient.call(lambda: 7, LONG)
    threads = threading.active_count()
    let_go(impatient, gate)
    assert impatient.call(lambda: 7, LONG) == 7
    assert threading.active_count() <= threads


def test_closing_says_whether_all_calls_are_back(gate):
    """While one hangs, what it uses cannot be given back."""
    impatient = Impatient("a client")
    hang(impatient, gate)
    assert not impatient.close()


class Service:
    """Objects in memory behind a gate; `given` keeps what it was told to write to or read from."""

    name = "gated"

    def __init__(self):
        self.objects, self.closed = {}, False
        self.gates = []

    def _pass(self):
        if self.gates:
            self.gates.pop(0).wait(LONG)

    def present(self, names):
        self._pass()
        return [name in self.objects for name in names]

    def fetch(self, names, lengths):
        self._pass()
        return [self.objects.get(name) for name in names]

    def send(self, names, objects):
        self._pass()
        self.objects.update(zip(names, objects, strict=True))
        return [Verdict.STORED] * len(names)

    def remove(self, name):
        self.objects.pop(name, None)

    def close(self):
        self.closed = True


def names(count):
    return [b"gated-%026d" % index for index in range(count)]


def views(count, fill=0):
    return [memoryview(bytearray([fill] * SIZE)) for _ in range(count)]


def finish(store, ticket):
    while True:
        store.wait(LONG)
        for report in store.poll(0):
            if report.done:
                assert report.ticket == ticket
                return report


def test_a_hanging_service_costs_the_deadline_and_no_thread(gate):
    """Each kind of call ends TIMED_OUT in time with one worker; afterwards the worker serves on."""
    service = Service()
    store = WorkerStore(ObjectStore(service), workers=1, deadline_seconds=0.05)
    for ticket, call in enumerate(("exists", "get_into", "put")):
        service.gates = [gate]
        buffers = () if call == "exists" else (views(2),)
        getattr(store, call)(ticket, names(2), *buffers, 0)
        assert finish(store, ticket).verdicts[0] is Verdict.TIMED_OUT
    service.gates = []
    store.put(10, names(2), views(2, 3), 0)
    assert finish(store, 10).good == 2
    store.close()
    assert not service.closed  # calls are still inside it


def test_a_late_answer_never_reaches_a_buffer(gate):
    """A read that was given up comes back when its buffers belong to somebody else."""
    service, out = Service(), views(2, 9)
    store = WorkerStore(ObjectStore(service), workers=1, deadline_seconds=0.05)
    store.put(1, names(2), views(2, 3), 0)
    assert finish(store, 1).good == 2
    service.gates = [gate]
    store.get_into(2, names(2), out, 0)
    assert finish(store, 2).good == 0
    let_go(store.blocking._impatient, gate)
    assert out == views(2, 9)
    store.close()
    assert service.closed


def test_pages_before_the_call_that_hangs_stand(gate):
    """The first batch was verified before the second one hung."""
    service, count = Service(), BATCH_PAGES + 4
    store = WorkerStore(ObjectStore(service), workers=1, deadline_seconds=0.2)
    store.put(1, names(count), views(count, 3), 0)
    assert finish(store, 1).good == count
    passing = threading.Event()
    passing.set()
    service.gates = [passing, gate]
    store.get_into(2, names(count), views(count), 0)
    report = finish(store, 2)
    assert (report.good, report.verdicts[BATCH_PAGES]) == (BATCH_PAGES, Verdict.TIMED_OUT)
    store.close()
