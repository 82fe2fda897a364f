"""From a published page to an acknowledged copy: the gates, the copy, the put, its tries, and what it teaches."""

from __future__ import annotations

from itertools import pairwise

from stagehold import HostMode, RequestState, WritePolicy
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.data import WriteData
from stagehold.lifecycle.writes import BACK_OFF_TICKS
from stagehold.machines import SpanKey
from stagehold.specs.outcomes import Offer
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand

SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(100, 100))


def offers(h: Hand, outcome: str) -> int:
    return h.taken(f"write.offered.offer.{outcome}")


def states(h: Hand) -> list[WriteState]:
    return [w.state for w in h.core.writes.values()]


def ended(h: Hand) -> None:
    h.until(lambda: not h.core.writes)


def offered(h: Hand, data: WriteData) -> tuple[Offer, WriteState]:
    """What one intent, made by hand, is told."""
    write = h.core.steps.write.birth(data, SpanKey(data.namespace, data.keys[-1], data.first, data.last))
    outcome = h.core.steps.write.offer(write)
    return outcome, write.state


def intent(h: Hand, tokens, first: int, last: int) -> WriteData:
    chain = h.chain(tokens)
    keys = tuple(chain.page_key(page) for page in range(first, min(last, chain.n_pages)))
    return WriteData(chain, b"", first, last, keys)


def test_published_pages_are_stored_and_believed(hand):
    """Write-through at first publication."""
    h = hand()
    tokens = h.prompt(8)
    h.run("a", tokens)
    ended(h)
    chain = h.chain(tokens)
    assert all(h.store.contains(name) for name in h.names(tokens))
    assert all(h.core.beliefs.knows(chain.page_key(page)) for page in range(8))
    assert ({}, 8) == (h.books(), h.engine.stats().stored_pages)


def test_stored_bytes_are_those_of_the_device(hand):
    """A copy of each page, through staging, with the right name."""
    h = hand(parts=2, page_part_bytes=32)
    tokens = h.prompt(4)
    a = h.arrive("a", tokens)
    h.admit(a)
    slots = h.engine.extend(a, 65).slots
    for page, slot in enumerate(slots):
        h.core.tensors.device.tensor[:, slot] = page + 50
    h.engine.publish(a, 64)
    ended(h)
    bodies = [h.store.medium.read(name)[-64:] for name in h.names(tokens)]
    assert [bytes([page + 50]) * 64 for page in range(4)] == bodies


def test_a_write_owns_backlog_then_staging_and_io(hand):
    """Staging is taken when the copy starts, never while it queues."""
    h = hand(delays=SLOW_PUTS)
    h.run("a", h.prompt(4))
    assert ([WriteState.QUEUED], {"backlog": 4}) == (states(h), h.books())
    h.tick()
    assert ([WriteState.COPYING], {"backlog": 4, "staging": 4, "io": 1}) == (states(h), h.books())
    h.tick()
    assert [WriteState.STORING] == states(h)


def test_the_source_of_a_copy_cannot_be_evicted(hand):
    """It is under the IO ticket until the copy has ended, and evictable during the put."""
    h = hand(delays=SLOW_PUTS)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick()
    assert (0, 4) == (h.core.tree.evict(4), h.live(tokens))
    h.tick()
    assert 4 == h.core.tree.evict(4)
    ended(h)
    assert h.store.contains(h.names(tokens)[3])


def test_without_a_store_an_offer_is_off(hand):
    """OFF."""
    h = hand(store=None)
    h.run("a", h.prompt(8))
    h.tick()
    assert (2, {}) == (offers(h, "OFF"), h.books())


def test_a_page_that_is_not_whole_is_keyless(hand):
    """KEYLESS: nothing names it."""
    h = hand()
    assert (Offer.KEYLESS, WriteState.REFUSED) == offered(h, intent(h, h.prompt(4), 2, 5))


def test_pages_that_are_believed_stored_are_not_written_again(hand):
    """BELIEVED."""
    h = hand()
    tokens = h.prompt(4)
    h.run("a", tokens)
    ended(h)
    h.shrink(tokens, 0)
    h.run("b", tokens)
    h.tick()
    assert (1, 4) == (offers(h, "BELIEVED"), h.engine.stats().stored_pages)


def test_pages_under_way_are_not_offered_twice(hand):
    """IN_FLIGHT."""
    h = hand(delays=SLOW_PUTS)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(2)
    h.shrink(tokens, 0)
    h.run("b", tokens)
    h.tick()
    assert 1 == offers(h, "IN_FLIGHT")


def test_a_page_whose_parent_is_neither_stored_nor_under_way_is_refused(hand):
    """Twelve pages in pieces of four: the backlog takes the first; the second is too much, the third an orphan."""
    with_room_for_one = hand(write_backlog_tokens=4 * 16)
    with_room_for_one.run("a", with_room_for_one.prompt(12))
    with_room_for_one.tick()
    assert (1, 1) == (offers(with_room_for_one, "FULL"), offers(with_room_for_one, "UNCOVERED"))


def test_a_full_backlog_refuses(hand):
    """FULL: the cap is a cap on what waits and flies, in tokens."""
    h = hand(delays=SLOW_PUTS, write_backlog_tokens=6 * 16)
    h.run("a", h.prompt(4))
    h.run("b", h.prompt(4, 2))
    h.tick()
    assert (1, 1, 4) == (offers(h, "QUEUE"), offers(h, "FULL"), h.books()["backlog"])


def test_a_span_that_staging_can_never_give_to_writes_is_refused(hand):
    """NEVER_FITS: a fifth of staging is what writes can always have."""
    h = hand(staging_pages=10)
    assert (Offer.NEVER_FITS, WriteState.REFUSED) == offered(h, intent(h, h.prompt(8), 0, 3))


def test_loads_keep_their_share_of_staging_before_writes(hand):
    """BLOCKED: writes take what is left beside loads and a reserve, and at least a fifth."""
    h = hand(delays=Delays(exists=(1, 1), get=(100, 100), put=(100, 100)))
    tokens = h.prompt(26, 2)
    h.put(tokens)
    h.arrive("load", tokens)
    h.tick(2)
    assert 26 == h.books()["staging"]
    for family in range(3, 7):
        h.run(f"w{family}", h.prompt(4, family))
    h.tick(3)
    assert 16 == h.books()["backlog"]
    # 40 pages, 26 of them under loads, 4 kept in reserve: 10 for writes, which come in fours.
    assert 8 == sum(len(w.data.staging) for w in h.core.writes.values())
    assert 6 == h.core.staging.free_count
    assert h.taken("write.queued.start.BLOCKED") > 0


def test_what_the_store_did_not_take_stays_in_host_memory(hand):
    """In `cache` mode the copy is of use without it."""
    h = hand(host_memory_mode=HostMode.CACHE, tries=1)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.store.fail_next(1)
    ended(h)
    assert (0, 4) == (h.engine.stats().stored_pages, h.core.host.reach(h.chain(tokens), 0, 4))


def test_a_write_may_have_the_last_pages_of_staging(hand):
    """Loads have all but four of them, and a fifth is what writes can always have."""
    h = hand(delays=Delays(exists=(1, 1), get=(100, 100), put=(100, 100)))
    for family, pages in ((2, 26), (3, 10)):
        h.put(h.prompt(pages, family))
        h.arrive(f"load{family}", h.prompt(pages, family))
    h.tick(2)
    assert 36 == h.books()["staging"]
    h.run("w", h.prompt(4, 4))
    h.tick(2)
    assert ([WriteState.STORING], 0) == (states(h), h.core.staging.free_count)


def test_a_copy_may_lock_the_last_pages_that_can_be_evicted(hand):
    """While it runs nothing more can be promised, and what is promised can be had."""
    h = hand(device_pages=40)
    h.run("w", h.prompt(4))
    h.admit(h.arrive("runs", h.prompt(31, 2)))
    h.admit(h.arrive("more", h.prompt(3, 3)))
    assert 4 == h.core.room()
    h.tick()
    assert ([WriteState.COPYING], 0) == (states(h), h.core.room())


def test_a_tenth_of_staging_is_kept_for_loads_that_may_come(hand):
    """However much waits: writes of one page each take 36 of 40 pages, to the page."""
    h = hand(delays=SLOW_PUTS)
    for family in range(2, 42):
        h.run(f"w{family}", h.prompt(1, family))
    h.tick(3)
    assert (36, 4) == (sum(len(w.data.staging) for w in h.core.writes.values()), h.core.staging.free_count)


def test_a_write_whose_pages_were_evicted_before_its_copy_is_gone(hand):
    """GONE: dropped with a reason, and its backlog given back."""
    h = hand()
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.shrink(tokens, 0)
    h.tick()
    assert ([], {}, 1) == (states(h), h.books(), h.taken("write.queued.start.GONE"))
    assert 4 == h.engine.stats().dropped_pages


def test_an_evicted_tail_is_given_up_and_the_head_written(hand):
    """What is still live is copied."""
    h = hand()
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.shrink(tokens, 2)
    h.tick()
    assert 2 == h.books()["backlog"]
    ended(h)
    assert [True, True, False, False] == [h.store.contains(name) for name in h.names(tokens)]
    assert (2, 2) == (h.engine.stats().stored_pages, h.engine.stats().evicted_unwritten_pages)
    assert 0 == h.core.beliefs.flying


def test_a_write_whose_parent_was_dropped_is_gone_too(hand):
    """A page that nobody could reach is not worth a put."""
    h = hand(tries=1, largest_request_tokens=600, delays=Delays(exists=(1, 1), get=(100, 100), put=(1, 1)))
    tokens = h.prompt(34, 2)
    h.put(tokens)
    h.arrive("load", tokens)
    h.tick(2)
    h.run("a", h.prompt(8))
    h.tick()
    assert [WriteState.COPYING, WriteState.QUEUED] == states(h)
    h.store.fail_next(1)
    ended(h)
    h.tick()
    assert (1, 1) == (h.taken("write.storing.put_ended.SPENT"), h.taken("write.queued.start.GONE"))


def test_a_failed_put_is_tried_again_after_a_pause_that_doubles(hand):
    """Staging is not sat on between tries."""
    h = hand()
    h.run("a", h.prompt(4))
    h.tick(2)
    put_at = []
    for _ in range(3):
        h.until(lambda: WriteState.STORING in states(h))
        put_at.append(h.now)
        for ticket in h.store.in_flight():
            h.store._failing[ticket] = 0
        h.tick()
        if h.core.writes:
            assert ([WriteState.QUEUED], {"backlog": 4}, 0) == (states(h), h.books(), len(h.core.beliefs))
    pauses = [later - earlier for earlier, later in pairwise(put_at)]
    assert [2 + BACK_OFF_TICKS, 2 + 2 * BACK_OFF_TICKS] == pauses
    assert ([], {}, 4) == (states(h), h.books(), h.engine.stats().dropped_pages)
    h.tick()
    assert 1 == h.taken("write.storing.put_ended.SPENT")


def test_only_an_acknowledged_put_teaches(hand):
    """A failed one leaves no belief behind."""
    h = hand(tries=1)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick()
    h.store.fail_next(1)
    ended(h)
    chain = h.chain(tokens)
    assert [False] * 4 == [h.core.beliefs.knows(chain.page_key(page)) for page in range(4)]
    assert 0 == h.core.beliefs.flying


def test_a_put_that_hangs_drains_and_is_not_tried_again(hand):
    """The buffer stays with its IO; the late success is not believed."""
    h = hand(put_limit=30)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(2)
    h.store.stall()
    assert 30 == h.until(lambda: states(h) == [WriteState.DRAINING])
    assert {"staging": 4, "io": 1} == h.books()
    h.tick(200)
    assert [WriteState.DRAINING] == states(h)
    h.store.release()
    ended(h)
    assert ({}, False) == (h.books(), h.core.beliefs.knows(h.chain(tokens).page_key(0)))


def test_a_write_that_waits_too_long_is_dropped(hand):
    """BLOCKED does not start its clock again."""
    h = hand(write_wait_limit=25)
    h.run("a", h.prompt(4))
    h.outage()
    h.run("b", h.prompt(4, 2))
    since = h.now
    h.until(lambda: not h.core.writes)
    assert 25 >= h.now - since
    assert 1 == h.taken("write.queued.timeout")


def test_a_write_waits_while_the_breaker_is_open_and_goes_on_afterwards(hand):
    """Nothing is lost by a short outage."""
    h = hand(open_limit=20)
    h.outage()
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(10)
    assert [WriteState.QUEUED] == states(h)
    ended(h)
    assert h.store.contains(h.names(tokens)[3])


def test_a_long_publication_is_written_in_pieces_that_staging_can_give(hand):
    """No piece is larger than what writes can always have."""
    h = hand(staging_pages=20)
    h.run("a", h.prompt(15))
    assert {2, 1} == {w.data.pages for w in h.core.writes.values()}
    ended(h)
    assert 15 == h.engine.stats().stored_pages


def test_in_cache_mode_stored_pages_stay_in_the_host_tier(hand):
    """And are offered from there without another copy."""
    h = hand(host_memory_mode=HostMode.CACHE)
    tokens = h.prompt(4)
    h.run("a", tokens)
    ended(h)
    assert 4 == len(h.core.host)
    h.core.beliefs.forget()
    for name in h.names(tokens):
        h.store.drop(name)
    h.shrink(tokens, 0)
    h.run("b", tokens)
    h.tick()
    assert ([WriteState.STORING], 1) == (states(h), h.taken("write.queued.start.HOSTED"))
    ended(h)
    assert h.store.contains(h.names(tokens)[3])


def test_a_retraction_does_not_touch_the_write_of_what_was_published(hand):
    """The pages are the tree's, and the copy's source stays under IO."""
    h = hand()
    tokens = h.prompt(4)
    a = h.arrive("a", tokens)
    h.admit(a)
    h.compute(a)
    h.tick()
    assert [WriteState.COPYING] == states(h)
    again = h.engine.retract(a)
    ended(h)
    assert RequestState.COVERED is h.engine.state_of(again)
    assert h.store.contains(h.names(tokens)[3])


def test_drain_writes_everything_and_counts_what_it_could_not(hand):
    """The durable end of a server: ticks until the writes have ended."""
    h = hand()
    h.run("a", h.prompt(8))
    assert (0, []) == (h.engine.drain(50).unwritten, states(h))
    h.run("b", h.prompt(8, 2))
    h.tick(2)
    h.store.stall()
    h.run("c", h.prompt(8, 3))
    drained = h.engine.drain(3)
    assert (16, {}, 16) == (drained.unwritten, drained.dropped, drained.in_flight)


def test_two_writes_of_one_page_cannot_leave_it_in_flight_for_ever(hand):
    """Whatever ends the first, the count of pages on their way comes back to zero."""
    h = hand(put_limit=10)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(2)
    h.store.stall()
    h.until(lambda: states(h) == [WriteState.DRAINING])
    h.shrink(tokens, 0)
    h.run("b", tokens)
    assert 4 == h.core.beliefs.flying
    h.store.release()
    ended(h)
    assert 0 == h.core.beliefs.flying
    assert h.core.beliefs.knows(h.chain(tokens).page_key(3))


def test_the_selective_policy_writes_what_a_second_request_matches(hand):
    """The first publication is written by nobody; the second use of the pages offers them."""
    h = hand(write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    tokens = h.prompt(6)
    h.run("a", tokens)
    assert [] == states(h)
    h.run("b", tokens)
    ended(h)
    assert 6 == h.engine.stats().stored_pages
    h.run("c", tokens)
    assert [] == states(h)


def test_a_copy_takes_no_room_that_was_promised_to_a_running_request(hand):
    """Its source could not be evicted for whom the pages were promised to."""
    h = hand(device_pages=40)
    h.run("writer", h.prompt(4))
    h.admit(h.arrive("runs", h.prompt(31, 2)))
    more = h.arrive("more", h.prompt(5, 3))
    h.admit(more)
    assert 2 == h.core.room()
    h.tick(3)
    assert [WriteState.QUEUED] == states(h)
    h.engine.abort(more)
    h.tick()
    assert [WriteState.COPYING] == states(h)
