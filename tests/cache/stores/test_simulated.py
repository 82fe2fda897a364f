"""The simulated store: deterministic in ticks, honest about bytes."""

import copy
import itertools

import pytest

from stagehold.cache.stores.protocol import Store, Verdict
from stagehold.cache.stores.simulated import Delays, Link, Medium, Rates, SimulatedStore

NOW = Delays((1, 1), (1, 1), (1, 1))


def names(count, start=0):
    return [b"page-%012d" % index for index in range(start, start + count)]


def bodies(count, size=64, start=0):
    return [memoryview(bytearray([(start + index) % 251 + 1] * size)) for index in range(count)]


def empties(count, size=64):
    return [memoryview(bytearray(size)) for _ in range(count)]


def settle(store, tick=1, ticks=64):
    """Poll until nothing is in flight; return the last progress of each ticket."""
    last = {}
    for now in range(tick, tick + ticks):
        last.update({progress.ticket: progress for progress in store.poll(now)})
        if not store.in_flight():
            return last
    return last


def filled(store, count=4, size=64):
    store.put(1, names(count), bodies(count, size), 0)
    settle(store)
    return store


def script(store):
    """A fixed mix of operations; returns every report of every tick and the bytes that arrived."""
    seen, out = [], empties(40)
    for tick in range(30):
        if tick < 10:
            base = 4 * tick
            store.put(100 * tick, names(4, base), bodies(4, start=base), tick)
            store.exists(100 * tick + 1, names(8), tick)
            store.get_into(100 * tick + 2, names(4, base), out[base : base + 4], tick)
        seen += [(tick, progress) for progress in store.poll(tick)]
    return seen, [bytes(view) for view in out]


WILD = {"rates": Rates(0.1, 0.1, 0.1, 0.1, 0.1), "pages_per_tick": 5}


def test_it_is_a_store():
    """The simulated store satisfies the protocol."""
    assert isinstance(SimulatedStore(), Store)


def test_what_was_put_comes_back():
    """Bytes written are the bytes read."""
    store, out = filled(SimulatedStore(delays=NOW)), empties(4)
    store.get_into(2, names(4), out, 2)
    assert settle(store, 2)[2].verdicts == (Verdict.HIT,) * 4
    assert out == bodies(4)


def test_exists_answers_for_every_key():
    """Presence is answered key by key, and `good` is the leading part."""
    store = filled(SimulatedStore(delays=NOW))
    store.exists(2, [*names(2), b"nobody-ever-put-me", *names(1, 3)], 2)
    progress = settle(store, 2)[2]
    assert progress.good == 2
    assert progress.verdicts == (Verdict.HIT, Verdict.HIT, Verdict.MISS, Verdict.HIT)


def test_a_get_ends_at_its_first_miss():
    """Keys after the first one that is not a hit are not looked at."""
    store, out = filled(SimulatedStore(delays=NOW)), empties(4)
    store.drop(names(4)[1])
    store.get_into(2, names(4), out, 2)
    progress = settle(store, 2)[2]
    assert progress.verdicts == (Verdict.HIT, Verdict.MISS, Verdict.UNREAD, Verdict.UNREAD)


def test_the_same_seed_gives_the_same_run():
    """Two stores with one seed report the same progress in the same ticks, and the same bytes."""
    assert script(SimulatedStore(7, **WILD)) == script(SimulatedStore(7, **WILD))


def test_another_seed_gives_another_run():
    """The seed matters (else the test above could not fail)."""
    assert script(SimulatedStore(7, **WILD)) != script(SimulatedStore(8, **WILD))


def test_a_copy_goes_on_like_the_original():
    """A deep copy taken with operations in flight ends in the same reports, dice included."""
    store = SimulatedStore(3, **WILD)
    for ticket in range(6):
        store.put(ticket, names(6, 6 * ticket), bodies(6), 0)
    store.poll(0)
    other = copy.deepcopy(store)
    assert store.in_flight()
    assert [store.poll(tick) for tick in range(1, 20)] == [other.poll(tick) for tick in range(1, 20)]
    assert store.keys() == other.keys()


def test_a_copy_shares_nothing_that_moves():
    """Dropping a page of the copy leaves the original alone."""
    store = filled(SimulatedStore(delays=NOW))
    copy.deepcopy(store).drop(names(1)[0])
    assert store.contains(names(1)[0])


def test_a_copy_can_be_pointed_at_other_buffers():
    """After `rebind` the copy writes into the copy's memory only."""
    store, out, other_out = filled(SimulatedStore(delays=NOW)), empties(4), empties(4)
    store.get_into(2, names(4), out, 2)
    other = copy.deepcopy(store)
    other.rebind({2: other_out})
    other.poll(9)
    assert other_out == bodies(4)
    assert out == empties(4)


def test_a_long_get_reports_good_pages_as_they_come():
    """With two pages a tick a get of five is done in the third."""
    store = filled(SimulatedStore(delays=NOW), 5)
    store = SimulatedStore(delays=NOW, medium=store.medium, pages_per_tick=2)
    store.poll(0)
    store.get_into(2, names(5), empties(5), 0)
    seen = [(p.good, p.done) for tick in range(1, 5) for p in store.poll(tick)]
    assert seen == [(2, False), (4, False), (5, True)]


def test_pages_of_a_tick_are_shared_in_turn():
    """A long operation does not hold up a short one."""
    store = filled(SimulatedStore(delays=NOW), 8)
    store = SimulatedStore(delays=NOW, medium=store.medium, pages_per_tick=2)
    store.poll(0)
    store.get_into(2, names(8), empties(8), 0)
    store.get_into(3, names(1), empties(1), 0)
    assert [(p.ticket, p.done) for p in store.poll(1)] == [(2, False), (3, True)]


def moved(stores, ticks):
    """Poll all stores in turn; return the pages that each had moved by the end of each tick."""
    seen, good = [], [{} for _ in stores]
    for tick in ticks:
        for store, pages in zip(stores, good, strict=True):
            pages.update({report.ticket: report.good for report in store.poll(tick)})
        seen.append(tuple(sum(pages.values()) for pages in good))
    return seen


def ranks(count, pages_per_tick, medium=None):
    """Stores of `count` ranks on one medium and one link."""
    medium, link = medium or Medium(), Link(pages_per_tick)
    return [SimulatedStore(delays=NOW, medium=medium, link=link) for _ in range(count)]


def test_reads_and_writes_share_the_bandwidth():
    """Four pages a tick: beside a write, a read moves at half its speed."""
    medium = filled(SimulatedStore(delays=NOW), 8).medium
    (alone,), (both,) = ranks(1, 4, medium), ranks(1, 4, medium)
    alone.get_into(2, names(8), empties(8), 0)
    assert moved([alone], range(1, 3)) == [(4,), (8,)]
    both.get_into(2, names(8), empties(8), 0)
    both.put(3, names(8, 100), bodies(8), 0)
    seen = [{report.ticket: report.good for report in both.poll(tick)} for tick in range(1, 5)]
    assert seen == [{2: 2, 3: 2}, {2: 4, 3: 4}, {2: 6, 3: 6}, {2: 8, 3: 8}]


def test_ranks_contend_for_one_link():
    """Two ranks read at half the speed of one; when one of them is done the other has all of it."""
    medium = filled(SimulatedStore(delays=NOW), 24).medium
    first, second = stores = ranks(2, 4, medium)
    first.exists(1, names(1), 0)
    moved(stores, range(1))
    first.get_into(2, names(4), empties(4), 0)
    second.get_into(2, names(16), empties(16), 0)
    seen = moved(stores, range(1, 7))
    assert [after[1] for after in seen] == [0, 4, 8, 12, 16, 16]
    assert seen[0] == (5, 0)  # the looked-up key counts here, and took no bandwidth


@pytest.mark.parametrize(("pages_per_tick", "busy"), [(1, 2), (4, 2), (5, 3), (7, 4)])
def test_a_link_is_shared_evenly_and_never_exceeded(pages_per_tick, busy):
    """Over many ticks each busy rank has its part, whatever does not divide; no tick has more than fits."""
    medium = filled(SimulatedStore(delays=NOW), 1).medium
    stores = ranks(busy, pages_per_tick, medium)
    ticks = 12 * busy
    for store in stores:
        for ticket in range(2, 2 + ticks * pages_per_tick):
            store.get_into(ticket, names(1), empties(1), 0)
    seen = [(0,) * busy, *moved(stores, range(1, ticks + 1))]
    steps = [sum(after) - sum(before) for before, after in itertools.pairwise(seen)]
    assert set(steps) == {pages_per_tick}
    assert max(seen[-1]) - min(seen[-1]) <= 2 * pages_per_tick


def test_lookups_pass_beside_a_full_link():
    """Asking costs latency, not bandwidth."""
    store = SimulatedStore(delays=NOW, pages_per_tick=1)
    store.put(1, names(8), bodies(8), 0)
    store.exists(2, names(50, 100), 0)
    assert [(p.ticket, p.done) for p in store.poll(1)] == [(1, False), (2, True)]


def test_a_copy_has_a_link_of_its_own():
    """What the copy moves is not taken from the original."""
    store = filled(SimulatedStore(delays=NOW), 4)
    store.limit(2)
    store.get_into(2, names(4), empties(4), 2)
    other = copy.deepcopy(store)
    assert moved([other, store], range(3, 5)) == [(2, 2), (4, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pages_per_tick": 0}, "expected at least 1"),
        ({"pages_per_tick": 1, "link": Link(1)}, "expected one of them"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused(options, message):
    """No pages at all, or two limits at once."""
    with pytest.raises(ValueError, match=message):
        SimulatedStore(**options)


def test_nothing_arrives_before_its_delay():
    """A delay of three ticks is three ticks."""
    store = SimulatedStore(delays=Delays((3, 3), (3, 3), (3, 3)))
    store.exists(1, names(1), 10)
    assert store.poll(12) == []
    assert [p.ticket for p in store.poll(13)] == [1]


def test_a_flipped_bit_is_corrupt_and_gone():
    """Damage is found by the checksum, and a page found bad is not found again."""
    store = filled(SimulatedStore(delays=NOW))
    store.damage(names(1)[0])
    store.get_into(2, names(1), empties(1), 2)
    store.get_into(3, names(1), empties(1), 2)
    last = settle(store, 2)
    assert last[2].verdicts == (Verdict.CORRUPT,)
    assert last[3].verdicts == (Verdict.MISS,)


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        (Rates(lose=1), Verdict.MISS),
        (Rates(corrupt=1), Verdict.CORRUPT),
        (Rates(short=1), Verdict.TORN),
        (Rates(fail=1), Verdict.FAILED),
    ],
)
@pytest.mark.parametrize("size", [0, 64])
def test_each_misbehaviour_is_a_named_miss(rates, verdict, size):
    """No rate ever turns into a hit, with bytes or without."""
    medium = Medium()
    if not rates.lose:
        filled(SimulatedStore(delays=NOW, medium=medium), size=size)
    store = SimulatedStore(delays=NOW, rates=rates, medium=medium)
    store.put(1, names(1), bodies(1, size), 0)
    settle(store)
    store.get_into(2, names(1), empties(1, size), 2)
    assert settle(store, 2)[2].verdicts == (verdict,)


def test_capacity_evicts_the_least_recently_read():
    """The medium never holds more than its capacity, and a read page outlives an unread one."""
    store = SimulatedStore(delays=NOW, medium=Medium(4 * (256 + 64)))
    filled(store, 4)
    store.get_into(2, names(1), empties(1), 2)
    settle(store, 2)
    store.put(3, names(1, 4), bodies(1), 4)
    settle(store, 4)
    assert store.keys() == [*names(2, 2), *names(1), *names(1, 4)]
    assert store.medium.used_bytes <= store.medium.capacity_bytes


def test_a_page_that_can_never_fit_is_refused():
    """Larger than the capacity: REFUSED, and nothing is evicted for it."""
    store = SimulatedStore(delays=NOW, medium=Medium(256 + 64))
    filled(store, 1)
    store.put(2, names(1, 5), bodies(1, 65), 2)
    assert settle(store, 2)[2].verdicts == (Verdict.REFUSED,)
    assert store.keys() == names(1)


def test_a_stalled_store_answers_after_its_release():
    """Nothing completes while stalled; everything does afterwards."""
    store = SimulatedStore(delays=NOW)
    store.stall()
    store.exists(1, names(1), 0)
    assert [store.poll(tick) for tick in range(1, 5)] == [[]] * 4
    store.release()
    assert [p.ticket for p in store.poll(5)] == [1]


def test_a_single_stalled_operation_is_released_too():
    """An operation drawn to stall stays in flight until `heal`."""
    store = SimulatedStore(delays=NOW, rates=Rates(stall=1))
    store.exists(1, names(1), 0)
    assert store.poll(1000) == []
    store.heal()
    assert [p.ticket for p in store.poll(1001)] == [1]


def test_the_next_operations_can_be_made_to_fail():
    """`fail_next(1)` fails one operation and no more."""
    store = filled(SimulatedStore(delays=NOW))
    store.fail_next(1)
    store.get_into(2, names(2), empties(2), 2)
    store.get_into(3, names(2), empties(2), 2)
    last = settle(store, 2)
    assert last[2].verdicts == (Verdict.FAILED, Verdict.UNREAD)
    assert last[3].good == 2


def test_a_closed_store_takes_nothing():
    """Closing is idempotent, ends what is in flight and refuses new work."""
    store = SimulatedStore()
    store.exists(1, names(1), 0)
    store.close()
    store.close()
    assert store.poll(9) == []
    with pytest.raises(RuntimeError, match="closed"):
        store.exists(2, names(1), 9)


def test_keys_without_buffers_are_refused():
    """Each key of a get has its buffer."""
    with pytest.raises(ValueError, match="2 keys with 1 buffers"):
        SimulatedStore().get_into(1, names(2), empties(1), 0)
