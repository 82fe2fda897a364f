"""`cache` mode: a prefix in the host tier, what the store has behind it, and how the two become one hit."""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind, HostMode, PrefetchPolicy
from stagehold.cache.stores.simulated import Delays
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.testing.hand import AT_ONCE, Hand
from stagehold.testing.watched import CountedStore

CACHE = {"host_memory_mode": HostMode.CACHE, "staging_pages": 80, "load_limit_fraction": 1.0}
BYTES = {"parts": 2, "page_part_bytes": 32}


def hosted(hand, pages: int = 6, in_store: int = 12, **settings) -> Hand:
    """The host tier has `pages` pages of the prompt, the store the first `in_store`, and the device none."""
    h = hand(store=CountedStore(delays=AT_ONCE), **{**CACHE, **settings})
    h.put(h.prompt(pages))
    a = h.arrive("before", h.prompt(pages))
    h.until_state(a, RequestState.STAGED)
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    h.admit(a)
    h.engine.abort(a)
    h.until(lambda: not h.core.holds)
    h.shrink(h.prompt(pages), 0)
    assert pages == h.core.host.reach(h.chain(h.prompt(pages)), 0, pages)
    h.put(h.prompt(in_store))
    h.store.lookups = h.store.pages_read = 0
    return h


def served(h: Hand, tokens) -> tuple[int, list[list[int]]]:
    """Store hit of a request that waits for it, and the bytes of its pages."""
    a = h.arrive("a", tokens)
    h.tick()
    h.until(lambda: h.engine.state_of(a) is not RequestState.LOOKUP)
    if h.engine.state_of(a) is RequestState.STAGED:
        h.until(lambda: h.hold_of(a).state is HoldState.READY)
    admission = h.admit(a)
    tensor = None if h.engine.device_bytes is None else h.engine.device_bytes.tensor
    found = [] if tensor is None else [tensor[:, slot].unique().tolist() for slot in admission.slots]
    return admission.store_hit_tokens, found


def test_a_longer_run_in_the_store_is_not_lost_for_what_is_hosted(hand):
    """Six pages of twelve are here: one lookup, six pages read, twelve pages hit, with the right bytes."""
    h = hosted(hand, **BYTES)
    assert (12 * 16, [[page + 1] for page in range(12)]) == served(h, h.prompt(12))
    assert (1, 6) == (h.store.lookups, h.store.pages_read)
    assert (6 * 16, 12 * 16) == (h.engine.stats().local, h.engine.stats().fetched)


def test_all_that_is_hosted_is_lent(hand):
    """To the last page before the one that is missing."""
    h = hosted(hand, 11, prefetch_threshold_tokens=16)
    assert 12 * 16 == served(h, h.prompt(12))[0]
    assert (1, 1) == (h.store.lookups, h.store.pages_read)


def test_what_is_hosted_as_a_whole_asks_nobody(hand):
    """Up to the last page that may be hit."""
    h = hosted(hand, 12)
    assert 12 * 16 == served(h, h.prompt(12))[0]
    assert (0, 0) == (h.store.lookups, h.store.pages_read)


def test_what_is_hosted_is_worth_as_much_as_the_threshold(hand):
    """Two pages are the least that is fetched, and the least that is taken from here without a question."""
    h = hosted(hand, 2)
    assert 32 == h.config.prefetch_threshold_tokens == served(h, h.prompt(2))[0]
    assert (0, 0) == (h.store.lookups, h.store.pages_read)


def test_a_tail_below_the_threshold_asks_nobody(hand):
    """What would not be worth a fetch is not worth a question."""
    h = hosted(hand, 11)
    assert 11 * 16 == served(h, h.prompt(12))[0]
    assert 0 == h.store.lookups


def test_a_store_that_has_no_more_costs_one_question(hand):
    """The hosted pages are hit, and nothing is counted as missing."""
    h = hosted(hand, 6, in_store=6)
    assert 6 * 16 == served(h, h.prompt(12))[0]
    assert (1, 0) == (h.store.lookups, h.store.pages_read)
    assert 0 == h.taken("request.lookup.answer.MISS")


def test_a_store_that_has_lost_the_head_keeps_nobody_from_the_host(hand):
    """The tier is no mirror of the store."""
    h = hosted(hand, 6, in_store=6)
    for name in h.names(h.prompt(6)):
        h.store.drop(name)
    assert 6 * 16 == served(h, h.prompt(12))[0]


def test_who_will_not_wait_takes_what_is_here(hand):
    """`best_effort`: no question."""
    h = hosted(hand, prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    a = h.arrive("a", h.prompt(12))
    h.tick()
    assert 6 * 16 == h.admit(a).store_hit_tokens
    assert 0 == h.store.lookups


def test_a_store_that_does_not_answer_costs_its_limit_and_no_page(hand):
    """The lookup runs out, and the hosted pages are claimed in the same tick."""
    h = hosted(hand, lookup_limit=8)
    h.store.stall()
    a = h.arrive("a", h.prompt(12))
    h.until_state(a, RequestState.STAGED, patience=12)
    assert HoldState.READY is h.hold_of(a).state or h.until(lambda: h.hold_of(a).state is HoldState.READY, 2) >= 0
    assert 6 * 16 == h.admit(a).store_hit_tokens
    h.store.release()


def test_an_attempt_asks_once(hand):
    """After a loss it takes what is here, and the budget of re-issues is not spent on questions."""
    h = hosted(hand, 6, in_store=6, ready_limit=5)
    a = h.arrive("a", h.prompt(12))
    h.until_state(a, RequestState.STAGED)
    h.until_state(a, RequestState.RETRY)
    h.tick(10)
    assert RequestState.STAGED is h.engine.state_of(a)
    assert (1, 2) == (h.store.lookups, h.machine(a).issues)


def test_a_fetch_that_fails_behind_the_host_keeps_the_host(hand):
    """The head is spliced; only the tail is computed."""
    h = hosted(hand)
    a = h.arrive("a", h.prompt(12))
    h.tick()
    for name in h.names(h.prompt(12), 6):
        h.store.drop(name)
    h.until(lambda: h.machine(a).data.hold and h.hold_of(a).state is HoldState.READY, 40)
    assert 6 * 16 == h.admit(a).store_hit_tokens


def test_a_fetch_that_hangs_behind_the_host_is_cut_to_the_host(hand):
    """Its limit passes; the hosted head is ready, the rest drains with its IO."""
    h = hosted(hand, fetch_limit=10)
    h.store._delays = Delays(exists=(1, 1), get=(500, 500), put=(1, 1))
    a = h.arrive("a", h.prompt(12))
    h.until(lambda: h.machine(a).data.hold and h.hold_of(a).state is HoldState.READY, 40)
    assert 6 * 16 == h.admit(a).store_hit_tokens
    assert [HoldState.DRAINING] == [x.state for x in h.core.holds.values() if x.state is not HoldState.LOADING]
    h.store.release()


def test_lent_pages_are_not_reclaimed_under_a_fetch(hand):
    """Staging is short, and others want it: what the hold has borrowed stays until it is over."""
    h = hosted(hand, **BYTES, staging_pages=20)
    h.store._delays = Delays(exists=(1, 1), get=(20, 20), put=(1, 1))
    a = h.arrive("a", h.prompt(12))
    h.until(lambda: h.machine(a).data.hold and h.hold_of(a).state is HoldState.FETCHING, 10)
    for family in range(2, 6):
        h.run(f"w{family}", h.prompt(4, family))
        h.tick(3)
    h.until(lambda: h.hold_of(a).state is HoldState.READY, 40)
    admission = h.admit(a)
    found = [h.engine.device_bytes.tensor[:, slot].unique().tolist() for slot in admission.slots]
    assert [[page + 1] for page in range(12)] == found


@pytest.mark.parametrize("mode", list(HostMode))
def test_a_window_comes_from_host_memory_too(hand, mode):
    """Both components are kept by key; the second time nobody is asked."""
    window = ComponentConfig(
        name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=32, device_pages=64, staging_pages=20
    )
    h = hand(
        store=CountedStore(delays=AT_ONCE),
        **{**CACHE, "host_memory_mode": mode, "page_cache_fraction": 0.5},
        components=(window,),
        chunk_tokens=160,
    )
    tokens = h.prompt(8)
    h.run("a", tokens)
    h.until(lambda: not h.core.writes)
    h.shrink(tokens, 0)
    h.store.lookups = 0
    a = h.arrive("b", tokens)
    h.tick(2)
    assert (128, 0, 0) == (h.admit(a).store_hit_tokens, h.store.lookups, h.store.pages_read - 1)
