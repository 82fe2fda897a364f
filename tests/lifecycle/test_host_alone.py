"""`cache` mode without a store: host memory alone takes what is computed and gives it back."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold import HostMode, WritePolicy
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.operations import Kind
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand

ALONE = {"store": None, "host_memory_mode": HostMode.CACHE, "staging_pages": 80}
BYTES = {"parts": 2, "page_part_bytes": 32}


def crowd(h: Hand, families: int, pages: int = 8) -> None:
    """So many prompts, one after the other, with time for copies between them."""
    for family in range(1, families + 1):
        h.run(f"r{family}", h.prompt(pages, family))
        h.tick(4)


def again(h: Hand, tokens: Any, rid: str = "again") -> int:
    """The hit, beside the device, of one more request that waits for its hold; it is sent away then."""
    a = h.arrive(rid, tokens)
    h.tick()
    if h.engine.state_of(a) is RequestState.STAGED:
        h.until(lambda: h.hold_of(a).state is HoldState.READY)
    hit = h.admit(a).store_hit_tokens
    h.engine.abort(a)
    h.until(lambda: not (h.core.holds or h.core.writes))
    return hit


def hosted(h: Hand, tokens: Any) -> int:
    """Pages of the prompt in host memory, from the first on."""
    chain = h.chain(tokens)
    return h.core.host.reach(chain, 0, chain.n_pages)


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
def test_what_has_left_the_device_comes_back(hand, policy):
    """All of it, without a store, a question or a belief; the books say where it went."""
    h = hand(**ALONE, write_policy=policy)
    crowd(h, 10)
    assert 0 == h.live(h.prompt(8))
    assert 8 * 16 == again(h, h.prompt(8))
    stats = h.engine.stats()
    assert (8 * 16, 0, 0, {}) == (stats.local, stats.fetched, stats.beliefs, stats.owned)
    assert (0, 0, 0) == (stats.stored_pages, stats.dropped_pages, stats.refused_pages)
    assert stats.host_only_pages == stats.offered_pages > 0


def test_the_selective_policy_takes_what_is_used_twice(hand):
    """A page that nobody came back for is not copied."""
    h = hand(**ALONE, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    crowd(h, 2)
    h.run("twice", h.prompt(8))
    h.tick(4)
    assert (8, 0) == (hosted(h, h.prompt(8)), hosted(h, h.prompt(8, 2)))


def test_the_bytes_are_those_that_were_computed(hand):
    """Through host memory and back to other slots."""
    h = hand(**ALONE, **BYTES)
    a = h.arrive("a", h.prompt(8))
    h.admit(a)
    h.engine.extend(a, 8 * 16 + 1)
    tensor = h.engine.device_bytes.tensor
    for page, slot in enumerate(h.engine.page_slots(a)):
        tensor[:, slot] = page + 1
    h.engine.publish(a, 8 * 16)
    h.tick(3)
    h.engine.finish(a)
    h.shrink(h.prompt(8), 0)
    tensor.zero_()
    b = h.arrive("b", h.prompt(8))
    h.tick(2)
    slots = h.admit(b).slots
    assert [[page + 1] for page in range(8)] == [tensor[:, slot].unique().tolist() for slot in slots]


def test_no_page_is_copied_twice(hand):
    """What host memory has is not offered again, however often it is used."""
    h = hand(**ALONE)
    for number in range(4):
        h.run(f"r{number}", h.prompt(8))
        h.tick(4)
    assert (1, 8) == (h.taken("write.queued.start.COPY"), h.engine.stats().offered_pages)


def test_what_host_memory_gave_up_is_offered_again(hand):
    """It had room for two prompts and a half of three; the next use of the first brings its tail back."""
    h = hand(**{**ALONE, "staging_pages": 20})
    crowd(h, 3)
    assert 4 == hosted(h, h.prompt(8))
    h.run("again", h.prompt(8))
    h.tick(12)
    assert 8 == hosted(h, h.prompt(8))


def test_a_head_that_host_memory_gave_up_is_offered_with_its_tail(hand):
    """Pages are of use from the first on only."""
    h = hand(**ALONE)
    h.run("head", h.prompt(6))
    h.tick(4)
    h.core.stocks.flush_hosts()
    h.run("tail", h.prompt(9))
    h.tick(8)
    assert 9 == hosted(h, h.prompt(9))


def test_a_request_that_host_memory_has_nothing_for_waits_for_nobody(hand):
    """It is capped at its launch."""
    h = hand(**ALONE)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert h.engine.state_of(a) is RequestState.CAPPED


def test_a_cover_that_shrinks_is_made_up_for(hand):
    """Found covered, evicted before it was admitted: host memory gives what went."""
    h = hand(**ALONE)
    crowd(h, 1)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert h.engine.state_of(a) is RequestState.COVERED
    h.shrink(h.prompt(8), 0)
    h.visit(a)
    h.tick()
    assert 8 * 16 == h.admit(a).store_hit_tokens


def test_buffer_only_takes_nothing(hand):
    """Its staging is no tier."""
    h = hand(store=None)
    crowd(h, 10)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    stats = h.engine.stats()
    assert (h.engine.state_of(a), stats.kept_pages) == (RequestState.CAPPED, 0)
    assert stats.refused_pages == stats.offered_pages > 0


# A store that comes


def test_what_host_memory_alone_has_is_written_when_it_is_matched(hand):
    """By a put of what lies there; nothing is copied from the device a second time."""
    h = hand(**ALONE)
    crowd(h, 1)
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment.name == "ATTACHED")
    assert [] == [name for name in h.names(h.prompt(8)) if h.store.contains(name)]
    h.run("again", h.prompt(8))
    h.tick(6)
    assert [] == [name for name in h.names(h.prompt(8)) if not h.store.contains(name)]
    assert (1, 1) == (h.taken("write.queued.start.COPY"), h.taken("write.queued.start.HOSTED"))


def test_what_host_memory_alone_has_is_written_when_it_is_built_upon(hand):
    """Also from the device's point of view long gone."""
    h = hand(**ALONE)
    crowd(h, 1)
    h.shrink(h.prompt(8), 0)
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment.name == "ATTACHED")
    longer = h.prompt(12)
    a = h.arrive("longer", longer)
    h.until_state(a, RequestState.STAGED)
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    assert 8 * 16 == h.serve(a).store_hit_tokens
    h.tick(12)
    assert [] == [name for name in h.names(longer) if not h.store.contains(name)]


def test_a_copy_under_way_when_a_store_has_come_is_put(hand):
    """It is told at its end where its bytes are wanted."""
    h = hand(**ALONE, engine_options={"copies": Slow(30)})
    h.run("a", h.prompt(2))
    h.tick(2)
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.tick(60)
    assert [True, True] == [h.store.contains(name) for name in h.names(h.prompt(2))]


# A store that goes


class Slow:
    """Copies that are reported as ended `ticks` ticks late."""

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self.due: list[tuple[int, int]] = []

    def sent(self, number: int, tick: int) -> None:
        self.due.append((tick + self.ticks, number))

    def poll(self, tick: int) -> list[int]:
        ended = [number for due, number in self.due if due <= tick]
        self.due = [(due, number) for due, number in self.due if due > tick]
        return ended


def served(hand, **settings: Any) -> Hand:
    """An engine whose store and host memory have eight pages, and whose device has none of them."""
    h = hand(**{**ALONE, **settings, "store": SimulatedStore(delays=AT_ONCE)})
    crowd(h, 1)
    h.shrink(h.prompt(8), 0)
    return h


def test_host_pages_stay_and_serve_when_the_store_goes(hand):
    """Also to those who come while it is let go of."""
    h = served(hand)
    h.engine.detach()
    assert 8 * 16 == again(h, h.prompt(8))
    h.until(lambda: h.engine.attachment.name == "DETACHED")
    h.shrink(h.prompt(8), 0)
    assert 8 * 16 == again(h, h.prompt(8), "later")


def test_what_is_computed_after_a_detach_is_kept_though_the_former_store_had_it(hand):
    """What was believed of the store that went says nothing of host memory."""
    h = served(hand)
    h.engine.detach()
    h.core.stocks.flush_hosts()
    h.run("again", h.prompt(8))
    h.tick(6)
    assert 8 == hosted(h, h.prompt(8))


def test_a_verified_hold_needs_no_store_any_more(hand):
    """Whoever waits for it is served."""
    h = served(hand)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RequestState.STAGED)
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    h.engine.detach()
    h.tick(3)
    assert 8 * 16 == h.admit(a).store_hit_tokens


def test_a_fetch_under_way_is_dropped_with_its_store(hand):
    """Whoever waits for it computes."""
    h = hand(**{**ALONE, "store": SimulatedStore(delays=SLOW_GETS)}, detach_limit=200)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RequestState.STAGED)
    h.tick(2)
    h.engine.detach()
    assert (h.engine.state_of(a), 0) == (RequestState.CAPPED, h.admit(a).store_hit_tokens)


@pytest.mark.parametrize("state", [WriteState.COPYING, WriteState.STORING])
def test_bytes_on_their_way_to_the_store_stay_here(hand, state):
    """Their copy ends, or their put does; nobody believes that the store has them."""
    slow = {"store": SimulatedStore(delays=Delays((1, 1), (1, 1), (12, 12))), "engine_options": {"copies": Slow(6)}}
    h = hand(**{**ALONE, **slow})
    h.run("a", h.prompt(2))
    h.until(lambda: [w.state for w in h.core.writes.values()] == [state])
    h.engine.detach()
    h.until(lambda: not h.core.writes)
    assert (2, 0) == (hosted(h, h.prompt(2)), h.engine.stats().beliefs)


def test_a_busy_engine_lets_its_store_go_all_the_same(hand):
    """Copies that have nothing to do with the store do not keep it; there is one under way in every tick."""
    h = hand(**{**ALONE, "store": SimulatedStore(delays=AT_ONCE)}, engine_options={"copies": Slow(5)})
    for number in range(8):
        h.run(f"r{number}", h.prompt(2, number + 1))
        h.tick()
        if number == 2:
            h.engine.detach()
        assert Kind.COPY in [one.kind for one in h.core.operations.live.values()]
    assert h.engine.attachment.name == "DETACHED"


# The engine as a whole


def test_a_drain_says_that_no_store_has_what_it_kept(hand):
    """What host memory has is gone with the process."""
    h = hand(**ALONE)
    h.run("a", h.prompt(8))
    drained = h.engine.drain(50)
    assert (0, {"no_store": 8}, 0) == (drained.stored, drained.dropped, drained.in_flight)


def test_a_drain_copies_nothing_that_would_be_gone_with_the_process(hand):
    """A write-back policy without a store holds back to the end."""
    h = hand(**ALONE, write_policy=WritePolicy.WRITE_BACK)
    crowd(h, 3)
    assert {"not_begun": 24} == h.engine.drain(50).dropped
    assert 0 == h.taken("write.queued.start.COPY")


def test_a_flush_leaves_nothing(hand):
    """Not in host memory either, nor what was on its way there."""
    h = hand(**ALONE)
    crowd(h, 3)
    h.engine.flush()
    assert ([0, 0], 0) == ([len(h.core.host), h.core.staging.used], again(h, h.prompt(8)))


def test_a_flush_is_not_undone_by_a_put_that_ends_later(hand):
    """Its bytes were let go of; the store was told to take them, host memory was not."""
    h = hand(**{**ALONE, "store": SimulatedStore(delays=Delays((1, 1), (1, 1), (9, 9)))})
    h.run("a", h.prompt(2))
    h.until(lambda: [w.state for w in h.core.writes.values()] == [WriteState.STORING])
    h.engine.flush()
    h.until(lambda: not h.core.writes)
    assert 0 == len(h.core.host)


def test_a_snapshot_has_what_host_memory_had(hand):
    """Served before and after it is put back."""
    h = hand(**ALONE, **BYTES)
    crowd(h, 1)
    saved = h.engine.snapshot()
    first = [h.shrink(h.prompt(8), 0), again(h, h.prompt(8)), h.engine.digest()]
    h.engine.flush()
    h.engine.restore(saved)
    assert first == [h.shrink(h.prompt(8), 0), again(h, h.prompt(8)), h.engine.digest()]


def test_a_store_that_rests_keeps_its_queue(hand):
    """Its writes wait for it; host memory takes them when it answers again, and serves what it has meanwhile."""
    h = served(hand, trip_results=2)
    h.outage()
    assert 8 * 16 == again(h, h.prompt(8))
    h.run("during", h.prompt(6, 7))
    h.tick(4)
    assert (0, 6) == (hosted(h, h.prompt(6, 7)), h.engine.stats().backlog_pages)
