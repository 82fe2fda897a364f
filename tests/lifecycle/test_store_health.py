"""Is the store asked at all, and is there one: self-test, breaker, attaching and detaching."""

from __future__ import annotations

import pytest

from stagehold import AttachmentState, Misuse, RequestState
from stagehold.cache.stores.simulated import Rates, SimulatedStore
from stagehold.specs.store import StoreState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand

OPEN, HEALTHY, SUSPECT, PROBING = StoreState.OPEN, StoreState.HEALTHY, StoreState.SUSPECT, StoreState.PROBING
ATTACHED, DETACHED, ATTACHING = AttachmentState.ATTACHED, AttachmentState.DETACHED, AttachmentState.ATTACHING


def breaker(h: Hand) -> StoreState:
    return h.core.breaker.state


def lookups(h: Hand, count: int, *, bad: int = 0) -> None:
    """`count` lookups that end in one tick each; the first `bad` of them fail."""
    for number in range(count):
        h.store.fail_next(1 if number < bad else 0)
        handle = h.arrive(f"q-{h.now}-{number}", h.prompt(4, 500 + number))
        h.tick(2)
        h.engine.abort(handle)
    h.store.fail_next(0)


def attached_to(hand, store) -> Hand:
    """An engine without a store, to which this one is being attached."""
    h = hand(store=None)
    h.store = store
    h.engine.attach(store)
    return h


def test_a_store_is_attached_once_its_test_page_has_come_back(hand):
    """Put it, get it, compare; until then nothing is launched."""
    h = attached_to(hand, SimulatedStore(delays=AT_ONCE))
    a = h.arrive("a", h.prompt(8))
    assert (ATTACHING, {"link": 1}) == (h.engine.attachment, h.engine.stats().owned)
    h.tick()
    assert RequestState.QUEUED is h.engine.state_of(a)
    h.tick()
    assert (ATTACHED, RequestState.LOOKUP) == (h.engine.attachment, h.engine.state_of(a))


def test_a_request_that_cannot_wait_for_the_self_test_is_admitted(hand):
    """An unready store is a miss."""
    store = SimulatedStore(delays=AT_ONCE)
    store.stall()
    h = attached_to(hand, store)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert h.admit(a).admitted


@pytest.mark.parametrize("rates", [{"lose": 1.0}, {"fail": 1.0}, {"corrupt": 1.0}, {"short": 1.0}])
def test_a_store_that_does_not_bring_its_test_page_back_is_refused(hand, rates):
    """Whatever is wrong with it, it is never used."""
    h = hand(store=None, parts=2, page_part_bytes=32)
    h.store = SimulatedStore(delays=AT_ONCE, rates=Rates(**rates))
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is not ATTACHING, 10)
    assert (DETACHED, {}) == (h.engine.attachment, h.engine.stats().owned)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert RequestState.CAPPED is h.engine.state_of(a)


class Forger(SimulatedStore):
    """Says HIT, and has flipped a bit behind its own checksum."""

    def poll(self, tick):
        buffers = [found.buffers for found in self._operations.values() if found.kind.name == "GET"]
        reports = super().poll(tick)
        for pages in buffers:
            pages[0][0] ^= 1
        return reports


def test_the_test_page_is_compared_byte_for_byte(hand):
    """A store that vouches for wrong bytes is refused, too."""
    h = hand(store=None, parts=2, page_part_bytes=32)
    h.store = Forger(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is not ATTACHING, 10)
    assert DETACHED is h.engine.attachment


def test_a_store_that_does_not_answer_its_self_test_is_given_up_at_the_limit(hand):
    """And the requests that waited go on without it."""
    store = SimulatedStore()
    store.stall()
    h = hand(store=None, attach_limit=20)
    h.store = store
    h.engine.attach(store)
    a = h.arrive("a", h.prompt(8))
    assert 20 == h.until(lambda: h.engine.attachment is DETACHED)
    assert RequestState.CAPPED is h.engine.state_of(a)


def test_a_second_store_is_refused_while_one_is_attached(hand):
    """Detach first."""
    h = hand()
    with pytest.raises(Misuse, match="attached; detach it"):
        h.engine.attach(SimulatedStore())


def test_a_detached_store_can_be_replaced(hand):
    """What was believed of the old one is forgotten, and the old one is closed."""
    h = hand()
    tokens = h.prompt(8)
    h.run("a", tokens)
    h.until(lambda: not h.core.writes)
    h.shrink(tokens, 0)
    h.engine.detach()
    h.until(lambda: h.engine.attachment is DETACHED, 20)
    old, h.store = h.store, SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is ATTACHED, 20)
    assert old._closed
    assert 0 == len(h.core.beliefs)
    b = h.arrive("b", tokens)
    h.tick(2)
    assert RequestState.RETRY is h.engine.state_of(b)


def test_a_detach_that_runs_out_keeps_the_buffers_of_what_still_flies(hand):
    """The link is given back at its limit, the buffer at the end of its IO, even with another store attached."""
    h = hand(detach_limit=30, delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    h.arrive("a", tokens)
    h.tick(2)
    old = h.store
    old.stall()
    h.engine.detach()
    assert 30 == h.until(lambda: h.engine.attachment is DETACHED)
    assert {"staging": 8, "io": 1} == h.engine.stats().owned
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is ATTACHED, 20)
    h.tick(100)
    assert {"staging": 8, "io": 1} == h.books()
    old.release()
    h.tick(2)
    assert {} == h.books()
    assert old._closed


def test_a_new_store_starts_with_a_breaker_of_its_own(hand):
    """The outage of the old one is not held against it."""
    h = hand()
    h.outage()
    h.engine.detach()
    h.until(lambda: h.engine.attachment is DETACHED, 20)
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is ATTACHED, 20)
    assert HEALTHY is breaker(h)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.admit(a).store_hit_tokens


def test_an_engine_without_a_store_asks_nothing_for_ever(hand):
    """A detached engine does not probe what is not there."""
    h = hand(open_limit=16)
    h.outage()
    h.engine.detach()
    h.tick(300)
    assert DETACHED is h.engine.attachment


def test_a_detach_changes_ones_mind_about_a_store_under_test(hand):
    """ATTACHING, too, can be left."""
    store = SimulatedStore()
    store.stall()
    h = attached_to(hand, store)
    h.engine.detach()
    assert (DETACHED, {}) == (h.engine.attachment, h.engine.stats().owned)
    h.tick(3)


def test_eight_results_of_which_half_are_faults_trip_the_breaker(hand):
    """The ratio means something only once the window holds enough."""
    h = hand()
    lookups(h, 7, bad=7)
    assert SUSPECT is breaker(h)
    lookups(h, 1, bad=1)
    assert OPEN is breaker(h)


def test_fewer_faults_than_half_do_not_trip_it(hand):
    """Three of eight."""
    h = hand()
    lookups(h, 8, bad=3)
    assert SUSPECT is breaker(h)


def test_a_miss_is_no_fault(hand):
    """A store that answers is healthy, whatever it holds."""
    h = hand()
    lookups(h, 20)
    assert HEALTHY is breaker(h)


def test_a_suspect_store_that_is_quiet_for_a_window_is_healthy_again(hand):
    """Or its faults leave the window."""
    h = hand(suspect_window=30)
    lookups(h, 2, bad=2)
    assert SUSPECT is breaker(h)
    assert 30 >= h.until(lambda: breaker(h) is HEALTHY)


def test_silence_is_a_fault(hand):
    """Lookups that run into their limit trip the breaker, too."""
    h = hand(lookup_limit=4, suspect_window=200)
    h.store.stall()
    for number in range(8):
        h.arrive(f"q{number}", h.prompt(4, number + 1))
    h.tick(6)
    assert OPEN is breaker(h)


def test_an_open_store_is_not_asked(hand):
    """Lookups decline at once, fetches and writes wait."""
    h = hand(open_limit=128)
    h.outage()
    before = h.core.operations._next
    h.run("w", h.prompt(8))
    a = h.arrive("a", h.prompt(4, 2))
    h.tick(100)
    assert (before, RequestState.RETRY) == (h.core.operations._next, h.engine.state_of(a))


def test_one_good_probe_heals(hand):
    """A test page out and back, after the rest."""
    h = hand(open_limit=20)
    h.outage()
    assert 20 == h.until(lambda: breaker(h) is PROBING)
    assert 1 == h.books()["probe"]
    h.until(lambda: breaker(h) is HEALTHY, 10)
    assert 0 == h.books().get("probe", 0)


def test_each_failed_probe_doubles_the_rest_up_to_the_cap(hand):
    """A healed store is found in time, a dead one is not nagged."""
    h = hand(open_limit=10, open_limit_cap=40)
    h.outage()
    rests = []
    for _ in range(4):
        rests.append(h.until(lambda: breaker(h) is PROBING))
        h.store.stall()
        h.until(lambda: breaker(h) is OPEN)
        h.store.release()
    assert [10, 20, 40, 40] == rests
    h.until(lambda: breaker(h) is HEALTHY, 60)


def test_a_silent_probe_is_a_bad_one(hand):
    """It has a limit of its own."""
    h = hand(open_limit=10, probe_limit=7)
    h.outage()
    h.until(lambda: breaker(h) is PROBING)
    h.store.stall()
    assert 7 == h.until(lambda: breaker(h) is OPEN)


def test_results_of_before_the_trip_are_no_events_after_it(hand):
    """A late failure does not open a healed store, a late success does not heal an open one."""
    h = hand(open_limit=10, suspect_window=200, lookup_limit=300)
    h.store.stall()
    old = [h.arrive(f"old{number}", h.prompt(4, number + 1)) for number in range(8)]
    h.tick()
    held, h.store._operations = h.store._operations, {}
    due, h.store._due = h.store._due, {}
    h.store.release()
    h.outage()
    h.until(lambda: breaker(h) is HEALTHY)
    h.store._operations.update(held)
    h.store._due.update(due)
    h.store._failing.update(dict.fromkeys(held, 0))
    h.tick(2)
    assert HEALTHY is breaker(h)
    assert all(h.engine.state_of(handle) is not RequestState.LOOKUP for handle in old)


def test_a_fetch_that_is_served_while_the_breaker_opens_is_still_used(hand):
    """Bytes that are there need no store."""
    h = hand(suspect_window=500)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.outage()
    assert 128 == h.admit(a).store_hit_tokens
