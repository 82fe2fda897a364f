"""An operation that nobody wants any more ends between two pages, whatever kind of store runs it."""

import copy
import random
import threading
import time

import pytest

from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.protocol import CuttableStore, Verdict, cut_short
from stagehold.cache.stores.simulated import NEVER, Delays, Link, Rates, SimulatedStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.lab.observe import Observed
from stagehold.lab.puts import CountedPuts, Puts
from stagehold.lab.virtual_store import LinkSpeed, VirtualClock, VirtualStore
from stagehold.lifecycle.ranks.one_copy import OneCopy
from stagehold.testing.faults import FaultAdapter, FaultPlan, Faults

SIZE = 64
LONG = 20.0
NEXT = Delays((1, 1), (1, 1), (1, 1))


def names(count, start=0):
    return [b"cut-%020d" % index for index in range(start, start + count)]


def views(count, fill=0):
    return [memoryview(bytearray([fill] * SIZE)) for _ in range(count)]


def hits(good, count):
    return (Verdict.HIT,) * good + (Verdict.UNREAD,) * (count - good)


class Gated(FileStore):
    """A file store that counts the pages it begins, and reads and writes none while its gate is closed."""

    def __init__(self, root):
        super().__init__(root, floor_bytes=0)
        self.gate, self.inside = threading.Event(), threading.Event()
        self.gate.set()
        self.begun = 0

    def _pass(self):
        self.begun += 1
        self.inside.set()
        assert self.gate.wait(LONG)

    def _read(self, *arguments):
        self._pass()
        return super()._read(*arguments)

    def _write(self, *arguments):
        self._pass()
        return super()._write(*arguments)


class Files:
    """A worker store over a gated one that has eight pages of sevens."""

    def __init__(self, root, **options):
        self.blocking = Gated(root)
        self.store = WorkerStore(self.blocking, **{"workers": 1, **options})
        self.ends = {}
        self.store.put(0, names(8), views(8, 7), 0)
        self.ended(0)
        self.blocking.begun = 0

    def close_the_gate(self):
        self.blocking.inside.clear()
        self.blocking.gate.clear()

    def ended(self, ticket):
        """The last report on a ticket."""
        give_up_at = time.monotonic() + LONG
        while ticket not in self.ends:
            assert time.monotonic() < give_up_at, f"ticket {ticket} did not end"
            self.store.wait(0.05)
            self.ends.update({report.ticket: report for report in self.store.poll(0) if report.done})
        return self.ends.pop(ticket)


@pytest.fixture
def files(tmp_path):
    made = []

    def build(**options):
        made.append(Files(tmp_path / str(len(made)), **options))
        return made[-1]

    yield build
    for one in made:
        one.blocking.gate.set()
        one.store.close()


def busy(files, **options):
    """A store whose only thread stands in the first page of ticket 1."""
    made = files(**options)
    made.close_the_gate()
    made.out = views(8)
    made.store.get_into(1, names(8), made.out, 0)
    assert made.blocking.inside.wait(LONG)
    return made


def test_what_runs_ends_behind_the_page_that_it_is_in(files):
    """The buffers are the store's until then, and the page is good."""
    made = busy(files)
    made.store.cut(1, 0)
    made.store.cut(1, 0)
    assert ([], [1]) == (made.store.poll(0), made.store.in_flight())
    made.blocking.gate.set()
    assert hits(1, 8) == made.ended(1).verdicts
    assert (1, views(1, 7) + views(7)) == (made.blocking.begun, made.out)


def test_what_waits_ends_at_once_and_touches_nothing(files):
    """The thread that is busy has no part in it; the rest of the queue goes on."""
    made = busy(files)
    made.store.get_into(2, names(8), views(8), 0)
    made.store.put(3, names(2, 50), views(2, 9), 0)
    made.store.get_into(4, names(2), views(2), 0)
    made.store.cut(2, 0)
    made.store.cut(3, 0)
    assert [(2, hits(0, 8)), (3, hits(0, 2))] == [(one.ticket, one.verdicts) for one in made.store.poll(0) if one.done]
    made.blocking.gate.set()
    assert 8 == made.ended(1).good
    assert hits(2, 2) == made.ended(4).verdicts
    made.store.exists(5, names(2, 50), 0)
    assert (10, 0) == (made.blocking.begun, made.ended(5).good)


def test_a_put_that_is_cut_has_written_what_it_says(files):
    """A page more than was begun is neither told nor there."""
    made = files()
    made.close_the_gate()
    made.store.put(1, names(4, 20), views(4, 9), 0)
    assert made.blocking.inside.wait(LONG)
    made.store.cut(1, 0)
    made.blocking.gate.set()
    assert (Verdict.STORED, *hits(0, 3)) == made.ended(1).verdicts
    made.store.exists(2, names(4, 20), 0)
    assert (Verdict.HIT, *(Verdict.MISS,) * 3) == made.ended(2).verdicts


def test_no_deadline_runs_out_for_what_was_cut(files):
    """Nobody waits, so nobody has waited too long: that is no fault of the store."""

    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Clock()
    made = busy(files, clock=clock, deadline_seconds=5.0)
    made.store.cut(1, 0)
    clock.now = 6.0
    made.blocking.gate.set()
    assert hits(1, 8) == made.ended(1).verdicts


def test_tickets_that_are_over_or_unknown_are_ignored(files):
    """A ticket may be used again, and its second operation was not cut."""
    made = files()
    made.store.cut(1, 0)
    for _ in range(2):
        made.store.get_into(1, names(8), views(8), 0)
        assert hits(8, 8) == made.ended(1).verdicts
        made.store.cut(1, 0)
        assert [] == made.store.poll(0)


def test_closing_while_an_operation_is_cut_ends_it(files):
    """Nothing is told afterwards, and no thread is left."""
    made = busy(files)
    made.store.get_into(2, names(8), views(8), 0)
    made.store.cut(1, 0)
    closer = threading.Thread(target=made.store.close)
    closer.start()
    while not made.store._closing:
        time.sleep(0.001)
    made.store.cut(2, 0)
    made.blocking.gate.set()
    closer.join(LONG)
    made.store.cut(2, 0)
    assert ([], [], 1) == (made.store.poll(0), made.store.in_flight(), made.blocking.begun)
    assert not any(thread.is_alive() for thread in made.store._threads)


def test_nothing_is_told_of_a_cut_behind_the_end(files):
    """Though a thread has not come back, so that its buffers are still lent."""
    made = busy(files, deadline_seconds=0.05)
    made.store.get_into(2, names(8), views(8), 0)
    made.store.close()
    for ticket in (1, 2):
        made.store.cut(ticket, 0)
    assert ([], [1, 2]) == (made.store.poll(0), made.store.in_flight())


def test_cuts_that_race_with_threads_end_each_operation_once(files):
    """Three threads, and cuts at any moment: leading hits, the rest unread, one end each."""
    made, dice = files(workers=3), random.Random(3)
    outs, ends = {}, {}
    for ticket in range(1, 200):
        outs[ticket] = views(8)
        made.store.get_into(ticket, names(8), outs[ticket], 0)
        for _ in range(2):
            made.store.cut(dice.randint(max(1, ticket - 6), ticket), 0)
        for report in made.store.poll(0):
            assert report.ticket not in ends
            if report.done:
                ends[report.ticket] = report
    give_up_at = time.monotonic() + LONG
    while len(ends) < 199 and time.monotonic() < give_up_at:
        made.store.wait(0.01)
        ends.update({report.ticket: report for report in made.store.poll(0) if report.done})
    assert list(range(1, 200)) == sorted(ends)
    for ticket, report in ends.items():
        assert hits(report.good, 8) == report.verdicts
        assert views(report.good, 7) == outs[ticket][: report.good]
    assert any(report.good < 8 for report in ends.values())


# In ticks


def filled(cls=SimulatedStore, **options):
    """A simulated store of eight pages of sevens that lets a page pass in a tick."""
    store = cls(**{"delays": NEXT, "link": Link(1), **options})
    plain = SimulatedStore(delays=Delays((0, 0), (0, 0), (0, 0)), medium=store.medium)
    plain.put(1, names(8), views(8, 7), 0)
    plain.poll(0)
    return store


def polled(store, *ticks):
    return [(now, one.ticket, one.done, one.good) for now in ticks for one in store.poll(now)]


def test_the_simulated_store_moves_no_page_of_what_was_cut():
    """What came before it stands, and the link is free for others."""
    store, out = filled(), views(8)
    store.get_into(1, names(8), out, 0)
    assert [(1, 1, False, 1), (2, 1, False, 2)] == polled(store, 1, 2)
    store.get_into(2, names(8), views(8), 2)
    store.cut(1, 2)
    store.cut(7, 2)
    (ended, other) = store.poll(3)
    assert (True, hits(2, 8)) == (ended.done, ended.verdicts)
    assert (2, 1) == (other.ticket, other.good)
    assert views(2, 7) + views(6) == out
    assert [2] == store.in_flight()


def test_the_simulated_store_answers_no_sooner_than_it_would_have():
    """A way takes its time; no page passes on it."""
    store = filled(delays=Delays((1, 1), (5, 5), (1, 1)))
    store.get_into(1, names(8), views(8), 0)
    store.cut(1, 1)
    assert [(5, 1, True, 0)] == polled(store, 1, 2, 3, 4, 5, 6)


def test_a_cut_is_no_failure_and_ends_no_stall():
    """A failure that was drawn for a later page is not met; what hangs goes on hanging."""
    store = filled(rates=Rates(stall=1.0))
    store.fail_next(1)
    store.get_into(1, names(8), views(8), 0)
    store.cut(1, 0)
    assert [] == polled(store, *range(50))
    assert [NEVER] == list(store._due.values())
    store.release()
    assert [hits(0, 8)] == [one.verdicts for one in store.poll(50)]


def test_a_copy_of_a_simulated_store_has_the_same_cuts():
    """Both end alike, and a cut of the copy does nothing to the original."""
    store = filled()
    for ticket in (1, 2):
        store.get_into(ticket, names(8), views(8), 0)
    polled(store, 1, 2)
    store.cut(1, 2)
    twin = copy.deepcopy(store)
    assert [(3, 1, True, 2), (3, 2, False, 1)] == polled(twin, 3)
    twin.cut(2, 3)
    assert [(4, 2, True, 1)] == polled(twin, 4)
    assert [(3, 1, True, 2), (3, 2, False, 1), (4, 2, False, 2)] == polled(store, 3, 4)


def test_the_virtual_store_counts_no_page_that_was_cut():
    """Neither read nor on the link: another fetch has all of it."""
    clock = VirtualClock()
    store = VirtualStore(clock, SIZE, SIZE, LinkSpeed(SIZE * 1e3, (0.0, 0.0)), seed=1, capacity_bytes=0)
    start = clock.now_ns

    def at(page_time):
        clock.now_ns = start + page_time * 1_000_000
        return {one.ticket: one for one in store.poll(0)}

    at(0)
    store.put(1, names(8), views(8, 7), 0)
    at(1)
    assert at(30)[1].done
    for ticket in (2, 3):
        store.get_into(ticket, names(8), views(8), 0)
    at(31)
    at(35)
    before, came = store.read_pages, {2: store._came[2], 3: store._came[3]}
    store.cut(2, 0)
    told = at(35 + 8 - came[3])
    assert (True, hits(came[2], 8)) == (told[2].done, told[2].verdicts)
    assert told[3].done
    assert (came[2] + 8, True) == (store.read_pages, store.quiet)
    assert before == sum(came.values())


def test_the_delayed_store_tells_the_same_of_a_cut_however_slow_the_disk_is(tmp_path):
    """What was told stands, the rest is unread, and the end comes in the next tick."""

    def tell(root, pause):
        class Slow(FileStore):
            def _read(self, *arguments):
                time.sleep(pause)
                return super()._read(*arguments)

        inner = WorkerStore(Slow(root, floor_bytes=0))
        store = DelayedStore(inner, 1, delays=Delays((1, 1), (8, 8), (1, 1)))
        told = []
        store.put(1, names(8), views(8, 7), 0)
        for now in range(1, 30):
            if now == 2:
                store.get_into(2, names(8), views(8), now)
                store.get_into(3, names(8), views(8), now)
            if now == 6:
                for ticket in (1, 2, 9):
                    store.cut(ticket, now)
            told += [(now, one) for one in store.poll(now)]
        store.close()
        return told

    quick = tell(tmp_path / "quick", 0.0)
    assert quick == tell(tmp_path / "slow", 0.002)
    ends = {one.ticket: (now, one.verdicts) for now, one in quick if one.done}
    assert {2: (7, hits(3, 8)), 3: (10, hits(8, 8))} == {ticket: ends[ticket] for ticket in (2, 3)}


# Through others


@pytest.mark.parametrize(
    "wrap",
    [
        lambda store: store,
        lambda store: OneCopy(store, 0, 2),
        lambda store: Observed(store, []),
        lambda store: CountedPuts(store, Puts()),
        lambda store: FaultAdapter(store, 1, FaultPlan()),
        lambda store: FaultAdapter(store, 1, FaultPlan(get=Faults(fail=1.0))),
    ],
    ids=["plain", "one copy", "observed", "counted puts", "faults", "failing"],
)
def test_what_stands_before_a_store_lets_cuts_through(wrap):
    """No page moves, and no fault is made up behind the end."""
    store = wrap(filled())
    assert isinstance(store, CuttableStore)
    store.get_into(1, names(8), views(8), 0)
    store.cut(1, 0)
    assert [hits(0, 8)] == [one.verdicts for one in store.poll(1)]


def test_a_fault_behind_the_end_of_a_lookup_is_not_met():
    """The adapter's, for the key at which it would have failed."""
    store = FaultAdapter(filled(), 1, FaultPlan(exists=Faults(fail=1.0)))
    store.exists(1, names(8), 0)
    assert store._held[1].cut.real > 0
    store.cut(1, 0)
    assert [hits(0, 8)] == [one.verdicts for one in store.poll(1)]


def test_a_store_that_cannot_is_left_alone():
    """And so is none at all."""

    class Plain:
        name = "plain"

    cut_short(Plain(), 1, 0)
    cut_short(None, 1, 0)
    assert not isinstance(Plain(), CuttableStore)
