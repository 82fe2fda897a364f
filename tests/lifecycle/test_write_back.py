"""Write-back: pages are offered when the next evictions would take them, parents first, and what is lost is counted."""

from __future__ import annotations

import pytest

from stagehold import EngineConfig, HostMode, WritePolicy
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.specs.request import RequestState
from stagehold.testing.hand import AT_ONCE, Hand

LATE = {"host_memory_mode": HostMode.CACHE, "write_policy": WritePolicy.WRITE_BACK, "staging_pages": 80}


def stored(h: Hand, *families: int) -> list[int]:
    """Pages of each family's prompt in the store, as far as they lead from the root."""
    found = []
    for family in families:
        names = h.names(h.prompt(8, family))
        found.append(next((n for n, name in enumerate(names) if not h.store.contains(name)), len(names)))
    return found


def crowd(h: Hand, families: int) -> None:
    """So many prompts of eight pages, one after the other, with time for copies and puts between them."""
    for family in range(1, families + 1):
        h.run(f"r{family}", h.prompt(8, family))
        h.tick(4)


def test_buffer_only_refuses_it_at_start():
    """There is no tier that the pages could wait in; the sentence says what to set."""
    with pytest.raises(ValueError, match="host_memory_mode=cache, or write_policy=write_through"):
        EngineConfig(
            device_pages=64,
            staging_pages=40,
            largest_request_tokens=512,
            host_memory_mode=HostMode.BUFFER_ONLY,
            write_policy=WritePolicy.WRITE_BACK,
        )


def test_nothing_is_written_as_long_as_the_device_has_room(hand):
    """It waits, and is counted as waiting."""
    h = hand(**LATE)
    crowd(h, 3)
    stats = h.engine.stats()
    assert ([0, 0, 0], 24, 0) == (stored(h, 1, 2, 3), stats.held_back_pages, stats.offered_pages)


def test_what_is_about_to_leave_is_written_and_no_more(hand):
    """The pool has 64 pages, of which a quarter is to be free or safe: the two oldest prompts go out."""
    h = hand(**LATE)
    crowd(h, 8)
    assert [8, 8, 0, 0, 0, 0, 0, 0] == stored(h, *range(1, 9))
    assert 48 == h.engine.stats().held_back_pages


def test_what_has_left_the_device_comes_back_from_host_memory(hand):
    """Nothing is computed again, nothing fetched."""
    h = hand(**LATE)
    crowd(h, 10)
    assert 0 == h.live(h.prompt(8, 1))
    again = h.arrive("again", h.prompt(8, 1))
    h.tick(3)
    assert (128, 0) == (h.admit(again).store_hit_tokens, h.engine.stats().fetched)


def test_no_page_is_lost_to_a_server_that_gives_its_writes_time(hand):
    """Forty prompts through a pool of eight."""
    h = hand(**LATE)
    crowd(h, 40)
    stats = h.engine.stats()
    assert (0, 0, 0) == (stats.evicted_held_back_pages, stats.dropped_pages, stats.evicted_unwritten_pages)
    assert [8] * 30 == stored(h, *range(1, 31))


def test_what_is_evicted_first_is_counted(hand):
    """A burst takes all of the pool at once."""
    h = hand(**LATE)
    crowd(h, 4)
    h.core.tree.evict(20)
    h.tick()
    h.run("more", h.prompt(1, 50))
    assert 20 == h.engine.stats().evicted_held_back_pages


def test_the_head_is_written_with_the_tail(hand):
    """A long prompt is a leaf behind a shared head that everybody uses: both go out, the head first."""
    h = hand(**LATE)
    h.run("head", h.prompt(4))
    h.run("tail", h.prompt(8))
    for family in range(2, 9):
        h.run(f"r{family}", h.prompt(8, family))
        h.engine.abort(h.arrive(f"x{family}", h.prompt(4)))
        h.tick(4)
    assert [8] == stored(h, 1)


def test_a_hit_renews_what_waits(hand):
    """Pages that are used again leave later, so they are written later."""
    h = hand(**LATE)
    crowd(h, 6)
    h.run("again", h.prompt(8, 1))
    h.run("r7", h.prompt(8, 7))
    h.tick(6)
    assert [0, 8] == stored(h, 1, 2)


def test_a_write_that_was_given_up_waits_again_after_the_next_hit(hand):
    """Nothing is forgotten for good."""
    h = hand(**LATE, tries=1)
    crowd(h, 6)
    h.store.fail_next(1)
    h.run("r7", h.prompt(8, 7))
    h.tick(6)
    assert ([0], 8) == (stored(h, 1), h.engine.stats().dropped_pages)
    h.run("again", h.prompt(8, 1))
    assert 56 == h.engine.stats().held_back_pages


def test_a_drain_writes_all_that_waits(hand):
    """The next start finds it."""
    h = hand(**LATE)
    crowd(h, 5)
    drained = h.engine.drain(200)
    assert (40, {}, 0) == (drained.stored, drained.dropped, drained.in_flight)
    assert [8] * 5 == stored(h, *range(1, 6))
    second = hand(**LATE, store=SimulatedStore(medium=h.store.medium, delays=AT_ONCE))
    for family in range(1, 6):
        a = second.arrive(f"r{family}", second.prompt(8, family))
        second.until_state(a, RequestState.STAGED)
        second.tick(2)
        assert 128 == second.admit(a).store_hit_tokens
        second.engine.abort(a)


def test_a_drain_says_what_it_had_no_time_for(hand):
    """No tick at all: everything was waiting."""
    h = hand(**LATE)
    crowd(h, 3)
    drained = h.engine.drain(0)
    assert (0, {"not_begun": 24}, 24) == (drained.stored, drained.dropped, drained.unwritten)


def test_a_backlog_without_room_takes_what_it_can(hand):
    """The rest is offered when there is room again, and nothing is refused."""
    h = hand(**LATE, write_backlog_tokens=4 * 16)
    crowd(h, 4)
    drained = h.engine.drain(400)
    assert (32, {}) == (drained.stored, drained.dropped)
    assert 0 == h.taken("write.offered.offer.FULL")


@pytest.mark.parametrize("ticks", [1, 2])
@pytest.mark.parametrize("room", [4, 8])
def test_an_idle_engine_comes_to_rest_however_soon_it_forgets(hand, ticks, room):
    """Beliefs that end before a long prompt can be built upon: no page is written again and again."""
    h = hand(**LATE, belief_limit=ticks, write_backlog_tokens=room * 16)
    for family in range(1, 4):
        h.run(f"r{family}", h.prompt(20, family))
        h.tick(4)
    h.tick(60)
    offered = h.engine.stats().offered_pages
    h.tick(40)
    assert offered == h.engine.stats().offered_pages
    h.engine.drain(300)
    assert h.engine.stats().offered_pages <= offered + 3 * 20


def test_what_was_written_on_the_way_to_another_page_is_held_back_no_more(hand):
    """The pages in front of one that is about to leave are offered with it, and counted once."""
    h = hand(**LATE, write_backlog_tokens=4 * 16)
    for family in range(1, 4):
        h.run(f"r{family}", h.prompt(20, family))
        h.tick(20)
    stats = h.engine.stats()
    assert 0 < stats.held_back_pages == 60 - stats.stored_pages - stats.backlog_pages
