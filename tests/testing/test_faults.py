"""The fault adapter goes wrong as planned, and only so."""

import copy

import pytest

from stagehold.cache.stores.protocol import Store, Verdict
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.testing.faults import REORDER_TICKS, FaultAdapter, FaultPlan, Faults

NOW = Delays((0, 0), (0, 0), (0, 0))


def names(count, start=0):
    return [b"faulty-%012d" % index for index in range(start, start + count)]


def views(count, fill=0):
    return [memoryview(bytearray([fill] * 32)) for _ in range(count)]


def adapter(seed=1, filled=8, **plan):
    """A fault adapter over an honest simulated store that holds `filled` pages of sevens."""
    inner = SimulatedStore(delays=NOW)
    inner.put(0, names(filled), views(filled, 7), 0)
    inner.poll(0)
    return FaultAdapter(inner, seed, FaultPlan(**plan))


def one(store, kind, keys, buffers=None, tick=1):
    """Run one operation and return its last progress."""
    getattr(store, kind)(1, keys, *([] if buffers is None else [buffers]), tick)
    reports = [p for now in range(tick, tick + 50) for p in store.poll(now)]
    assert reports[-1].done
    return reports[-1]


def test_it_is_a_store():
    """The adapter satisfies the protocol."""
    assert isinstance(adapter(), Store)


def test_without_faults_it_is_invisible():
    """An empty plan passes everything through."""
    out = views(8)
    assert one(adapter(), "get_into", names(8), out).verdicts == (Verdict.HIT,) * 8
    assert out == views(8, 7)


def test_a_failing_get_keeps_the_pages_before_it():
    """FAILED at the drawn key, the leading pages good, the rest not looked at."""
    progress = one(adapter(get=Faults(fail=1)), "get_into", names(8), views(8))
    assert progress.verdicts[progress.good] is Verdict.FAILED
    assert set(progress.verdicts[: progress.good]) <= {Verdict.HIT}
    assert set(progress.verdicts[progress.good + 1 :]) <= {Verdict.UNREAD}


@pytest.mark.parametrize(("fault", "verdict"), [("short", Verdict.TORN), ("corrupt", Verdict.CORRUPT)])
def test_a_damaged_page_is_damaged_in_the_buffer_too(fault, verdict):
    """Whoever looks at the page in spite of the verdict finds wrong bytes."""
    out = views(8)
    progress = one(adapter(get=Faults(**{fault: 1})), "get_into", names(8), out)
    assert progress.verdicts[progress.good] is verdict
    assert bytes(out[progress.good]) != bytes(views(1, 7)[0])
    assert out[: progress.good] == views(progress.good, 7)


def test_a_lying_put_acknowledges_what_it_does_not_keep():
    """STORED for all keys; from the drawn one on nothing is there."""
    store = adapter(put=Faults(corrupt=1))
    assert one(store, "put", names(8, 100), views(8)).verdicts == (Verdict.STORED,) * 8
    assert any(not store.inner.contains(name) for name in names(8, 100))


def test_a_short_put_says_where_it_ended():
    """The rest is UNREAD, and not in the store."""
    store = adapter(put=Faults(short=1))
    progress = one(store, "put", names(8, 100), views(8))
    assert [store.inner.contains(name) for name in names(8, 100)] == [True] * progress.good + [False] * (
        8 - progress.good
    )
    assert set(progress.verdicts[progress.good :]) == {Verdict.UNREAD}


def test_a_lying_lookup_sees_what_is_not_there():
    """A phantom HIT, for the beliefs to survive."""
    assert one(adapter(exists=Faults(corrupt=1)), "exists", names(8, 100)).verdicts[-1] is Verdict.HIT


def test_a_delay_is_kept_to_the_tick():
    """Nothing before, everything then."""
    store = adapter(exists=Faults(delay=(5, 5)))
    store.exists(1, names(2), 10)
    assert [store.poll(tick) for tick in range(10, 15)] == [[]] * 5
    assert [p.ticket for p in store.poll(15)] == [1]


def test_a_reordered_operation_lets_a_later_one_pass():
    """The later lookup is told first; without a later one the wait is bounded."""
    store = adapter(exists=Faults(reorder=1), get=Faults())
    store.exists(1, names(2), 1)
    store.get_into(2, names(2), views(2), 1)
    assert [[p.ticket for p in store.poll(tick)] for tick in (1, 2)] == [[2], [1]]
    store.exists(3, names(2), 10)
    assert [tick for tick in range(10, 30) for p in store.poll(tick)] == [10 + REORDER_TICKS]


def test_a_stalled_operation_waits_for_its_release():
    """Never by itself; at once afterwards."""
    store = adapter(get=Faults(stall=1))
    store.get_into(1, names(2), views(2), 1)
    assert [store.poll(tick) for tick in range(1, 100)] == [[]] * 99
    store.heal()
    assert [p.good for p in store.poll(100)] == [2]


WILD = Faults((0, 6), 0.3, 0.2, 0.2, 0.2, 0.1)


def script(store):
    seen = []
    for tick in range(40):
        if tick < 20:
            store.put(3 * tick + 1, names(4, tick), views(4, tick), tick)
            store.get_into(3 * tick + 2, names(6, tick // 2), views(6), tick)
            store.exists(3 * tick + 3, names(9), tick)
        seen += [(tick, progress) for progress in store.poll(tick)]
    return seen


def test_the_same_seed_gives_the_same_faults():
    """And another seed gives others."""
    runs = [script(adapter(seed, exists=WILD, get=WILD, put=WILD)) for seed in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


def test_every_fault_is_drawn():
    """The counters tell that a run had what it was meant to have."""
    store = adapter(5, exists=WILD, get=WILD, put=WILD)
    script(store)
    assert all(store.counts.values()), store.counts


def test_a_copy_goes_on_like_the_original():
    """Dice and operations in flight are part of a snapshot."""
    store = adapter(5, exists=WILD, get=WILD, put=WILD)
    for ticket in range(1, 9):
        store.get_into(ticket, names(4), views(4), 0)
    other = copy.deepcopy(store)
    assert [store.poll(tick) for tick in range(30)] == [other.poll(tick) for tick in range(30)]
