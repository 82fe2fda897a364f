"""What no record says is counted where it happens, and agrees with what does have records."""

from __future__ import annotations

from collections import Counter

import pytest

from stagehold.lifecycle.happened import Amount, Read
from stagehold.specs.outcomes import HostMode
from stagehold.specs.store import StoreState
from stagehold.testing.hand import SLOW_GETS
from stagehold.testing.shapes import drawn
from stagehold.testing.steps import Walk
from stagehold.testing.storm import Storm
from stagehold.testing.world import World

BYTES = {"parts": 2, "page_part_bytes": 32}
PAGE = 64


def found(h, pages=8):
    h.put(h.prompt(pages))
    a = h.arrive("a", h.prompt(pages))
    h.tick(3)
    return a


def test_what_is_fetched_and_loaded_is_read_and_copied(hand):
    """Eight pages, none of them in vain."""
    h = hand(**BYTES)
    h.serve(found(h))
    stats = h.engine.stats()
    assert Amount(8, 8 * PAGE) == stats.read == stats.to_device
    assert {Amount()} == set(stats.thrown.values())


def test_what_a_sibling_computed_meanwhile_was_read_in_vain(hand):
    """Three pages of eight."""
    h = hand(**BYTES)
    a = found(h)
    h.grow(h.prompt(8), 3)
    h.serve(a)
    stats = h.engine.stats()
    assert (Amount(3, 3 * PAGE), Amount(5, 5 * PAGE)) == (stats.thrown["covered"], stats.to_device)


def test_a_hold_that_ends_before_its_splice_was_read_in_vain(hand):
    """All of it."""
    h = hand(**BYTES)
    h.engine.abort(found(h))
    assert Amount(8, 8 * PAGE) == h.engine.stats().thrown["unspliced"]


def test_bytes_that_nobody_wants_any_more_are_counted_when_they_come(hand):
    """The request has gone before they arrive, from a store that reads on."""
    h = hand(**BYTES, delays=SLOW_GETS)
    h.store.cut = None
    h.engine.abort(found(h))
    h.tick()
    assert Amount() == h.engine.stats().thrown["drained"]
    h.tick(100)
    assert Amount(8, 8 * PAGE) == h.engine.stats().thrown["drained"] == h.engine.stats().read


def test_what_a_broken_fetch_brought_is_counted_as_failed(hand):
    """One page, too few to keep: the store has lost the others since it was asked."""
    h = hand(**BYTES)
    h.put(h.prompt(8))
    h.arrive("a", h.prompt(8))
    h.tick(2)
    for name in h.names(h.prompt(8), 1):
        h.store.drop(name)
    h.until(lambda: h.taken("hold.fetching.fetched.NOTHING"), 9)
    stats = h.engine.stats()
    assert Amount(1, PAGE) == stats.read == stats.thrown["failed"]
    assert 8 - 1 == stats.wrong_beliefs


def test_a_write_is_counted_on_its_way_from_the_device(hand):
    """Four pages."""
    h = hand(**BYTES)
    h.run("a", h.prompt(4))
    h.tick(4)
    assert Amount(4, 4 * PAGE) == h.engine.stats().from_device


def test_a_parked_span_is_counted_by_what_it_waits_for(hand):
    """Each time that it is tried."""
    h = hand(delays=SLOW_GETS)
    for family in (1, 2):
        h.put(h.prompt(24, family))
        h.arrive(f"r{family}", h.prompt(24, family))
    h.tick(3)
    tries = h.taken("hold.parked.io_commit.NO_STAGING")
    assert tries
    assert {"device": 0, "pin": 0, "staging": tries * 24 * 16, "head": 0} == h.engine.stats().put_off


def test_an_admission_counts_its_prompt_and_where_that_came_from(hand):
    """Of 129 tokens 48 are on the device, and 80 come from the store."""
    h = hand()
    h.grow(h.prompt(8), 3)
    h.serve(found(h))
    admitted = h.engine.stats().admitted
    assert (1, 129, 48, 80) == (admitted.requests, admitted.prompt, admitted.device, admitted.store)


def test_the_pages_of_a_read_are_counted_in_their_order():
    """Between two places, over components whose pages differ in size."""
    read = Read(3, ((4, 10), (2, 100)))
    assert (Amount(4, 40), Amount(3, 120)) == (read.amount(0, 4), read.amount(2, 5))
    assert (Amount(6, 240), Amount()) == (read.amount(0, 9), read.amount(0, -2))


# States


def standing(core):
    """Instances by state, counted one by one; a store that was let go is over."""
    machines = {"request": core.requests, "hold": core.holds, "write": core.writes}
    counted = Counter(f"{name}.{m.state.name.lower()}" for name, alive in machines.items() for m in alive.values())
    if core.breaker.state is not StoreState.CLOSED:
        counted[f"store.{core.breaker.state.name.lower()}"] += 1
    counted[f"attachment.{core.link.state.name.lower()}"] += 1
    return counted


@pytest.mark.parametrize("seed", range(4))
def test_states_are_those_of_the_instances_and_ticks_their_sum(seed):
    """Through walks with restarts and rewinds: counted one by one at every tick, against what records add up to."""
    world = World(seed, drawn(seed))
    tick, before, states = world.tick, {}, Counter()

    def look(*given, **named):
        tick(*given, **named)
        stats, now = world.engine.stats(), standing(world.core)
        assert now == Counter({name: n for name, n in stats.states.items() if n})
        engine, at, ticks, stood = before.get("last", (None, 0, {}, {}))
        if engine is world.engine and at == stats.ticks - 1:
            spent = Counter({name: n - ticks[name] for name, n in stats.state_ticks.items()})
            assert stood == +spent
            states.update(+spent)
        before["last"] = (world.engine, stats.ticks, stats.state_ticks, now)

    world.tick = look
    Walk(world).run(200)
    assert states.total() > 100
    world.close()


def test_nothing_is_remembered_of_what_has_ended():
    """After a storm in which fetches are cut, dropped and fail; what was read is accounted for."""
    world = Storm(3, 150).run()
    stats = world.engine.stats()
    assert () == tuple(world.core.happened.open)
    assert stats.read.pages * 4 >= stats.spliced > 0
    assert 0 < sum(amount.pages for amount in stats.thrown.values()) < stats.read.pages
    world.close()


@pytest.mark.parametrize("mode", HostMode)
def test_pools_say_what_their_owners_have(hand, mode):
    """While a request runs whose pages are written."""
    h = hand(host_memory_mode=mode)
    a = h.arrive("a", h.prompt(4))
    h.admit(a)
    h.compute(a)
    h.tick()
    use = h.engine.stats().pools["full"]
    assert (64, 5) == (use.device_pages, use.device_used)
    assert (40, use.staging_written) == (use.staging_pages, use.staging_used - use.staging_kept)
    assert use.staging_used
