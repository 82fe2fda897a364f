"""The one look at the live tree before a fetch: every outcome, and what each takes."""

from __future__ import annotations

import pytest

from stagehold import HostMode, RequestState, Skip
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.data import HoldData
from stagehold.machines import SpanKey
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import IoCommit
from stagehold.testing.hand import SLOW_GETS, Hand

TIGHT = {"staging_pages": 10, "load_limit_fraction": 1.0}


def taken(hand: Hand, outcome: str) -> int:
    return hand.taken(f"hold.parked.io_commit.{outcome}")


def found(hand: Hand, rid: str, tokens, live: int = 0):
    """A request that has found all pages of its prompt in the store, behind `live` pages of the tree."""
    hand.put(tokens)
    hand.grow(tokens, live)
    handle = hand.arrive(rid, tokens)
    hand.tick(2)
    return handle


def test_a_hold_is_committed_in_the_tick_of_its_hit(hand):
    """Nothing else has to move for a new hold to be looked at."""
    h = hand(delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8))
    assert HoldState.FETCHING is h.hold_of(a).state


def test_a_live_anchor_is_pinned_with_staging_and_io_together(hand):
    """PINNED takes all three resources in one step."""
    h = hand(delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8), live=3)
    assert 1 == taken(h, "PINNED")
    assert {"claim": 1, "staging": 5, "pin": 3, "io": 1} == h.books()
    assert 3 == h.core.tree.pinned
    assert (3, 8) == (h.hold_of(a).data.start, h.hold_of(a).data.last)


def test_a_pinned_anchor_outlives_any_eviction(hand):
    """What a hold will be joined to cannot be evicted while it is fetched."""
    h = hand(delays=SLOW_GETS)
    tokens = h.prompt(8)
    found(h, "a", tokens, live=3)
    assert (0, 0) == (h.shrink(tokens, 0), h.core.tree.evict(64))
    assert 3 == h.live(tokens)


def test_a_span_from_the_root_has_an_empty_pin(hand):
    """NO_ANCHOR: the receipt is there, and costs nothing."""
    h = hand(delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8))
    assert 1 == taken(h, "NO_ANCHOR")
    assert {"claim", "staging", "io"} == set(h.books()) - {"pin"}
    assert {"staging", "pin", "io"} == h.core.ledger.owned(h.hold_of(a).number)
    assert 0 == h.core.tree.pinned


def test_an_anchor_larger_than_the_cap_is_not_pinned_and_is_looked_at_again_at_the_visit(hand):
    """TOO_LARGE_TO_PIN: the fetch goes on, and the splice is validated where it happens."""
    h = hand(pin_fraction=0.05)
    tokens = h.prompt(8)
    a = found(h, "a", tokens, live=4)
    assert (3, 1, 0) == (h.config.pin_cap, taken(h, "TOO_LARGE_TO_PIN"), h.core.tree.pinned)
    h.tick()
    h.shrink(tokens, 2)
    assert isinstance(h.visit(a), Skip)
    h.tick()
    assert 1 == h.taken("request.staged.evaluate.LOST")
    assert {"lost": 64} == h.engine.stats().losses


def test_pins_that_are_switched_off_leave_every_anchor_unpinned(hand):
    """pin_fraction=0, set on purpose, is a cap of nothing and no error."""
    h = hand(pin_fraction=0.0, delays=SLOW_GETS)
    found(h, "a", h.prompt(8), live=1)
    assert (0, 1, 0) == (h.config.pin_cap, taken(h, "TOO_LARGE_TO_PIN"), h.core.tree.pinned)


def test_host_resident_pages_are_shared_without_io(hand):
    """LOCAL: no fetch, no copy of the pages, ready at once."""
    h = hand(host_memory_mode=HostMode.CACHE)
    tokens = h.prompt(8)
    h.run("writer", tokens)
    h.until(lambda: not h.core.writes)
    h.shrink(tokens, 0)
    a = h.arrive("a", tokens)
    h.tick()
    assert (1, HoldState.READY) == (taken(h, "LOCAL"), h.hold_of(a).state)
    assert {2} == {h.core.staging.references(page) for page in h.hold_of(a).data.staging}
    assert 128 == h.admit(a).store_hit_tokens
    assert 0 == h.engine.stats().fetched


def test_a_full_pin_cap_parks_the_hold_until_a_pin_is_given_back(hand):
    """PIN_FULL: the second anchor waits for the first, and owns nothing meanwhile."""
    h = hand(pin_fraction=0.08, delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8, 1), live=3)
    b = found(h, "b", h.prompt(8, 2), live=3)
    assert (5, 1) == (h.config.pin_cap, taken(h, "PIN_FULL"))
    assert frozenset() == h.core.ledger.owned(h.hold_of(b).number)
    h.engine.abort(a)
    h.tick()
    assert (HoldState.FETCHING, 3) == (h.hold_of(b).state, h.core.tree.pinned)


def test_a_pin_takes_no_room_that_was_promised_to_a_running_request(hand):
    """PIN_FULL, too: pages under a pin could not be evicted for whom they were promised to."""
    h = hand(device_pages=40, delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.grow(tokens, 3)
    h.grow(h.prompt(6, 3), 6)
    runs = h.arrive("runs", h.prompt(31, 2))
    h.admit(runs)
    more = h.arrive("more", h.prompt(5, 4))
    h.admit(more)
    assert 2 == h.core.room()
    b = found(h, "b", tokens)
    assert (1, 0) == (taken(h, "PIN_FULL"), h.core.tree.pinned)
    h.engine.abort(more)
    h.tick()
    assert HoldState.FETCHING is h.hold_of(b).state


def test_an_anchor_as_large_as_the_cap_is_pinned(hand):
    """To the page."""
    h = hand(pin_fraction=0.05, delays=SLOW_GETS)
    found(h, "a", h.prompt(8), live=3)
    assert (3, 1, 3) == (h.config.pin_cap, taken(h, "PINNED"), h.core.tree.pinned)


def test_a_pin_may_have_all_the_room_that_is_left(hand):
    """As many evictable pages as the anchor has: after it nothing more can be promised."""
    h = hand(device_pages=40, delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.grow(tokens, 3)
    h.admit(h.arrive("runs", h.prompt(31, 2)))
    h.admit(h.arrive("more", h.prompt(4, 4)))
    assert 3 == h.core.room()
    found(h, "b", tokens)
    assert (1, 3, 0) == (taken(h, "PINNED"), h.core.tree.pinned, h.core.room())


def test_a_full_staging_parks_the_hold_until_pages_are_given_back(hand):
    """NO_STAGING: neither pin nor pages are taken while the other is short."""
    h = hand(**TIGHT, delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8, 1))
    b = found(h, "b", h.prompt(8, 2), live=2)
    h.tick()
    assert (1, HoldState.PARKED, 0) == (taken(h, "NO_STAGING"), h.hold_of(b).state, h.core.tree.pinned)
    assert (8, 1) == (h.books()["staging"], h.books()["io"])
    h.engine.abort(a)
    h.until(lambda: h.hold_of(b).state is HoldState.FETCHING, 110)


def test_a_longer_span_waits_for_a_shorter_one_and_fetches_only_the_rest(hand):
    """HEAD_BUSY: the head is not fetched twice; IO commit trims what the tree holds by then."""
    h = hand()
    long, short = h.prompt(12), h.prompt(5)
    h.put(long)
    a, b = h.arrive("short", short), h.arrive("long", long)
    h.tick(2)
    assert (HoldState.FETCHING, HoldState.PARKED) == (h.hold_of(a).state, h.hold_of(b).state)
    assert 1 == taken(h, "HEAD_BUSY")
    h.tick()
    h.admit(a)
    h.tick()
    assert (5, 12) == (h.hold_of(b).data.start, h.hold_of(b).data.last)
    assert 12 * 16 == h.engine.stats().fetched
    assert {"trimmed": 5 * 16} == h.engine.stats().losses


def test_a_shorter_span_does_not_wait_for_a_longer_one(hand):
    """Or both would wait for each other."""
    h = hand(delays=SLOW_GETS)
    found(h, "long", h.prompt(12))
    b = found(h, "short", h.prompt(5))
    assert (0, HoldState.FETCHING) == (taken(h, "HEAD_BUSY"), h.hold_of(b).state)


def test_a_parked_hold_whose_anchor_went_is_lost_and_the_store_is_asked_again_in_the_same_tick(hand):
    """LOST: no admission can come between the loss and the next launch."""
    h = hand(**TIGHT, delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8, 1))
    two = h.prompt(8, 2)
    b = found(h, "b", two, live=2)
    h.shrink(two, 0)
    h.engine.abort(a)
    h.until(lambda: taken(h, "LOST"))
    assert (RequestState.LOOKUP, 2) == (h.engine.state_of(b), h.machine(b).issues)
    assert {"lost": 96, "aborted": 128} == h.engine.stats().losses


def test_a_parked_hold_that_the_tree_has_outgrown_is_covered(hand):
    """COVERED: nothing is fetched that a sibling has published meanwhile."""
    h = hand(**TIGHT, delays=SLOW_GETS)
    a = found(h, "a", h.prompt(8, 1))
    two = h.prompt(8, 2)
    b = found(h, "b", two)
    h.grow(two, 8)
    h.engine.abort(a)
    h.until(lambda: taken(h, "COVERED"))
    assert RequestState.COVERED is h.engine.state_of(b)
    assert {"covered": 128, "aborted": 128} == h.engine.stats().losses
    assert 128 == h.engine.stats().fetched


def test_a_span_larger_than_staging_is_shortened_when_it_is_found(hand):
    """The request gets what staging can give, and no more is asked for."""
    h = hand(staging_pages=6, load_limit_fraction=1.0)
    a = found(h, "a", h.prompt(12))
    assert (0, 6) == (h.hold_of(a).data.start, h.hold_of(a).data.last)
    h.tick()
    assert 96 == h.admit(a).store_hit_tokens


def test_a_hold_that_could_never_fit_is_dropped(hand):
    """OVERSIZE: the same oversize is not tried again and again."""
    h = hand(staging_pages=6)
    chain = h.chain(h.prompt(12))
    data = HoldData(chain, b"", 0, 12, chain.page_key(11))
    hold = h.core.steps.hold.birth(data, SpanKey(b"", data.key, 0, 12))
    h.core.holds[hold.number] = hold
    h.core.hold_pages += 12
    assert IoCommit.OVERSIZE is h.core.steps.hold.io_commit(hold)
    h.core.settle()
    assert (HoldState.DROPPED, 0) == (hold.state, h.core.hold_pages)


def test_a_parked_hold_expires_when_the_breaker_opens(hand):
    """STORE_OPEN: a store in trouble is not asked; the request waits for its recovery, without a timer."""
    h = hand(pin_fraction=0.08, delays=SLOW_GETS)
    found(h, "a", h.prompt(8, 1), live=3)
    b = found(h, "b", h.prompt(8, 2), live=3)
    assert HoldState.PARKED is h.hold_of(b).state
    h.outage()
    assert (1, RequestState.RETRY) == (taken(h, "STORE_OPEN"), h.engine.state_of(b))
    assert 80 == h.engine.stats().losses["expired"]
    h.tick(20)
    assert (RequestState.RETRY, 1) == (h.engine.state_of(b), h.machine(b).issues)


def test_two_holds_over_one_anchor_pay_for_it_once(hand):
    """The charge is the set of pinned pages."""
    h = hand(pin_fraction=0.08, delays=SLOW_GETS)
    h.grow(h.prompt(3), 3)
    a = found(h, "a", h.prompt(8, 2, shared=3))
    b = found(h, "b", h.prompt(8, 3, shared=3))
    assert (5, 2, 3) == (h.config.pin_cap, taken(h, "PINNED"), h.core.tree.pinned)
    h.engine.abort(a)
    assert 3 == h.core.tree.pinned
    h.engine.abort(b)
    assert 0 == h.core.tree.pinned


def test_a_pin_follows_the_split_of_its_node(hand):
    """A sibling that forks inside the anchor cuts its node; both halves stay pinned, and one receipt frees both."""
    h = hand(delays=SLOW_GETS)
    tokens, fork = h.prompt(8), h.prompt(6, 2, shared=2)
    a = found(h, "a", tokens, live=4)
    h.grow(fork, 6)
    assert (4, 4) == (h.core.tree.pinned, h.core.tree.evict(64))
    assert (4, 2) == (h.live(tokens), h.live(fork))
    h.engine.abort(a)
    assert (0, 4) == (h.core.tree.pinned, h.core.tree.evict(64))


@pytest.mark.parametrize(
    ("settings", "live", "outcome"),
    [(TIGHT, 0, "NO_STAGING"), ({"pin_fraction": 0.08}, 3, "PIN_FULL")],
)
def test_parking_allocates_nothing(hand, settings, live, outcome):
    """Whatever keeps a hold parked, the pools are as before it was tried."""
    h = hand(**settings, delays=SLOW_GETS)
    found(h, "a", h.prompt(8, 1), live=live)
    two = h.prompt(8, 2)
    h.grow(two, live)
    before = h.core.staging.free_count, h.core.device.free_count, h.core.tree.evictable, h.core.tree.pinned
    found(h, "b", two)
    assert 1 == taken(h, outcome)
    assert before == (
        h.core.staging.free_count, h.core.device.free_count, h.core.tree.evictable, h.core.tree.pinned
    )  # fmt: skip


def test_declining_a_launch_allocates_nothing(hand):
    """A decline is a record and a counter, and an issue of the attempt."""
    h = hand(query_limit=1)
    h.store.stall()
    h.arrive("a", h.prompt(8, 1))
    b = h.arrive("b", h.prompt(8, 2))
    h.tick()
    assert (RequestState.RETRY, 1) == (h.engine.state_of(b), h.machine(b).issues)
    assert {"query": 1} == h.books()
    assert {"query_rate": 1} == h.engine.stats().declines


def test_a_hold_that_stays_parked_expires_at_the_park_limit(hand):
    """A try that found no room does not start the park clock again."""
    h = hand(**TIGHT, delays=SLOW_GETS, park_limit=20)
    found(h, "a", h.prompt(8, 1))
    b = found(h, "b", h.prompt(8, 2))
    parked_at = h.now
    while h.engine.state_of(b) is RequestState.STAGED:
        h.core.news += 1
        h.tick()
    assert (20, RequestState.RETRY) == (h.now - parked_at, h.engine.state_of(b))
    assert {"short_staging": 128} == h.engine.stats().losses


def test_the_anchor_counts_as_used_when_the_store_is_asked(hand):
    """At issue its recency is touched, so that older prefixes are evicted first; nothing is pinned yet."""
    h = hand()
    asked, other = h.prompt(8, 1), h.prompt(3, 2)
    h.grow(asked, 3)
    h.grow(other, 3)
    h.arrive("a", asked)
    h.tick()
    assert 0 == h.core.tree.pinned
    h.core.tree.evict(3)
    assert (3, 0) == (h.live(asked), h.live(other))


def test_small_holds_pass_a_large_one_a_bounded_number_of_times(hand):
    """Then staging is kept for the older one, so that a stream of small fetches cannot starve it."""
    h = hand(delays=Delays(exists=(1, 1), get=(1, 1), put=(1000, 1000)))
    h.run("writer", h.prompt(24))
    h.tick(2)
    big = found(h, "big", h.prompt(20, 2))
    assert (16, HoldState.PARKED) == (h.core.staging.free_count, h.hold_of(big).state)
    passed = []
    for number in range(12):
        small = found(h, f"small-{number}", h.prompt(2, 10 + number))
        passed.append(h.hold_of(small).state is HoldState.FETCHING)
        h.engine.abort(small)
        h.tick()
    assert [True] * 8 + [False] * 4 == passed
