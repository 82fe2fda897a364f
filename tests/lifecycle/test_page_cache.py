"""The page cache of `buffer_only`: what was read lately is found in spare staging before the store is asked."""

from __future__ import annotations

import pytest

from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand
from stagehold.testing.watched import CountedStore

BYTES = {"parts": 2, "page_part_bytes": 32}


def cached(hand, **settings) -> Hand:
    """An engine with a page cache, whose store has been asked for nothing yet."""
    h = hand(store=CountedStore(delays=AT_ONCE), page_cache_fraction=0.5, staging_pages=80, **settings)
    h.store.lookups = h.store.pages_read = 0
    return h


def read(h: Hand, rid: str, tokens) -> int:
    """Serve a request whose prompt may have to come from below; its pages on the device go. Returns its store hit."""
    a = h.arrive(rid, tokens)
    h.until_state(a, RequestState.STAGED, RequestState.RETRY)
    h.until(lambda: getattr(h.visit(a), "admitted", False), 200)
    hit = h.machine(a).data.store_hit_tokens
    h.engine.abort(a)
    h.until(lambda: not h.core.holds)
    h.shrink(tokens, 0)
    return hit


def kept(h: Hand) -> list[int]:
    """Pages of the prompts of families 1 to 6 that the cache has, from their first one on."""
    return [h.core.host.reach(h.chain(h.prompt(8, family)), 0, 8) for family in range(1, 7)]


def test_a_page_that_was_read_is_not_read_again(hand):
    """No lookup, no get, and the bytes are right."""
    h = cached(hand, **BYTES)
    h.put(tokens := h.prompt(8))
    assert 128 == read(h, "a", tokens)
    assert (1, 8) == (h.store.lookups, h.store.pages_read)
    a = h.arrive("b", tokens)
    h.tick(2)
    admission = h.admit(a)
    assert (128, 1, 8) == (admission.store_hit_tokens, h.store.lookups, h.store.pages_read)
    found = [h.core.tensors.device.tensor[:, slot].unique().tolist() for slot in admission.slots]
    assert [[page + 1] for page in range(8)] == found
    assert (1, 128) == (h.taken("hold.parked.io_commit.LOCAL"), h.engine.stats().local)


def test_without_a_cache_it_would_be(hand):
    """Planted, by the setting."""
    h = hand(store=CountedStore(delays=AT_ONCE), staging_pages=80)
    h.put(tokens := h.prompt(8))
    assert [128, 128] == [read(h, rid, tokens) for rid in "ab"]
    assert 16 + 1 == h.store.pages_read  # and the page of the self-test


def test_nothing_but_the_cache_keeps_staging(hand):
    """Its pages are found by key; no node of the tree, no hold, no write has one."""
    h = cached(hand)
    h.put(tokens := h.prompt(8))
    read(h, "a", tokens)
    assert ({}, 8, 72) == (h.books(), h.engine.stats().kept_pages, h.core.staging.free_count)


def test_a_hold_that_waits_for_staging_gets_it_from_the_cache(hand):
    """Reclaimed before anything else waits."""
    h = cached(hand, largest_request_tokens=1024, device_pages=128, load_limit_fraction=1.0)
    h.put(small := h.prompt(30))
    read(h, "a", small)
    assert 30 == h.engine.stats().kept_pages
    h.store._delays = SLOW_GETS
    h.put(large := h.prompt(60, 2))
    a = h.arrive("b", large)
    h.tick(2)
    assert HoldState.FETCHING is h.hold_of(a).state
    assert (20, 0) == (h.engine.stats().kept_pages, h.taken("hold.parked.io_commit.NO_STAGING"))


def test_what_was_written_is_kept_only_until_something_was_read(hand):
    """Writes pass by the cache: at its limit their pages are the first to go."""
    h = cached(hand)
    h.run("writer", h.prompt(8))
    h.until(lambda: not h.core.writes)
    for family in range(2, 7):
        h.put(tokens := h.prompt(8, family))
        read(h, f"r{family}", tokens)
    assert [0, 8, 8, 8, 8, 8] == kept(h)


def test_a_written_page_that_is_read_is_kept(hand):
    """One read hit, and it stays like the others, the oldest of which goes."""
    h = cached(hand)
    h.put(older := h.prompt(8, 2))
    read(h, "r2", older)
    h.run("writer", tokens := h.prompt(8))
    h.until(lambda: not h.core.writes)
    h.shrink(tokens, 0)
    assert 128 == read(h, "reader", tokens)
    assert 8 == h.store.pages_read
    for family in range(3, 7):
        h.put(more := h.prompt(8, family))
        read(h, f"r{family}", more)
    assert [8, 0, 8, 8, 8, 8] == kept(h)


def test_the_head_in_the_cache_and_the_tail_in_the_store_are_one_hit(hand):
    """The store is asked for what follows, and only that is fetched."""
    h = cached(hand, **BYTES)
    h.put(h.prompt(4))
    read(h, "a", h.prompt(4))
    h.put(tokens := h.prompt(12))
    h.store.lookups = h.store.pages_read = 0
    a = h.arrive("b", tokens)
    h.until_state(a, RequestState.STAGED)
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    admission = h.admit(a)
    assert (192, 1, 8) == (admission.store_hit_tokens, h.store.lookups, h.store.pages_read)
    found = [h.core.tensors.device.tensor[:, slot].unique().tolist() for slot in admission.slots]
    assert [[page + 1] for page in range(12)] == found


def test_a_tail_that_does_not_come_leaves_the_head(hand):
    """What the cache had is spliced, as far as it is worth a hold."""
    h = cached(hand)
    h.put(h.prompt(4))
    read(h, "a", h.prompt(4))
    h.put(tokens := h.prompt(12))
    a = h.arrive("b", tokens)
    h.tick()
    for name in h.names(tokens, 4):
        h.store.drop(name)
    h.until(lambda: h.machine(a).data.hold and h.hold_of(a).state is HoldState.READY, 50)
    assert 64 == h.admit(a).store_hit_tokens


@pytest.mark.parametrize("prefetch_policy", ["best_effort", "timeout", "wait_complete"])
def test_what_host_memory_has_is_never_lost_to_a_question(hand, prefetch_policy):
    """The store has no more, or does not answer, or nobody would wait for it: the hosted pages are claimed."""
    for silent in (False, True):
        h = cached(hand, prefetch_policy=prefetch_policy, lookup_limit=6)
        h.put(h.prompt(4))
        a = h.arrive("a", h.prompt(4))
        h.tick(4)
        h.admit(a)
        h.engine.abort(a)
        h.until(lambda h=h: not h.core.holds)
        h.shrink(h.prompt(4), 0)
        if silent:
            h.store.stall()
        b = h.arrive("b", h.prompt(12))
        h.tick(12)
        assert RequestState.STAGED is h.engine.state_of(b), (silent, prefetch_policy)
        assert 64 == h.admit(b).store_hit_tokens
        h.store.release()


def test_an_open_breaker_does_not_keep_anybody_from_the_cache(hand):
    """The store rests, the pages are here."""
    h = cached(hand)
    h.put(tokens := h.prompt(8))
    read(h, "a", tokens)
    h.outage()
    a = h.arrive("b", tokens)
    h.tick(2)
    assert 128 == h.admit(a).store_hit_tokens


def test_a_put_of_what_the_cache_has_needs_no_copy(hand):
    """The bytes are in host memory: no gather, and no staging beside them."""
    h = cached(hand)
    h.put(tokens := h.prompt(8))
    read(h, "a", tokens)
    h.core.beliefs.forget()
    for name in h.names(tokens):
        h.store.drop(name)
    h.run("b", tokens)
    h.tick()
    assert {WriteState.STORING} == {w.state for w in h.core.writes.values()}
    h.until(lambda: not h.core.writes)
    assert all(h.store.contains(name) for name in h.names(tokens))
