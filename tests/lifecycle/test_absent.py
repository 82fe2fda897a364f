"""A miss is remembered for a moment: siblings do not ask at once what was just answered, and no retry rule suffers."""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.specs.request import RequestState
from stagehold.testing.hand import AT_ONCE, Hand


class Asked(SimulatedStore):
    """A store that counts lookups."""

    def __init__(self) -> None:
        super().__init__(delays=AT_ONCE)
        self.lookups = 0

    def exists(self, ticket, keys, tick):
        self.lookups += 1
        super().exists(ticket, keys, tick)


def asked(hand, **settings) -> Hand:
    """An engine whose store was asked nothing yet."""
    h = hand(store=Asked(), **settings)
    h.store.lookups = 0
    return h


def missed(h: Hand) -> None:
    """One request has asked, and the store has nothing."""
    h.until_state(h.arrive("first", h.prompt(8)), RequestState.RETRY)


def test_siblings_of_a_miss_do_not_ask_again_at_once(hand):
    """They wait for their retry like the first, and their launches say why."""
    h = asked(hand)
    missed(h)
    siblings = [h.arrive(f"s{number}", h.prompt(8)) for number in range(5)]
    h.tick()
    assert 1 == h.store.lookups
    assert {RequestState.RETRY} == {h.engine.state_of(sibling) for sibling in siblings}
    assert {"absent": 5} == h.engine.stats().declines


def test_without_a_memory_each_of_them_asks(hand):
    """Planted, by the limit."""
    h = asked(hand, absence_limit=0)
    missed(h)
    for number in range(5):
        h.arrive(f"s{number}", h.prompt(8))
    h.tick()
    assert 6 == h.store.lookups


def test_the_memory_ends_before_the_retry(hand):
    """The next launch of the same request asks the store, and finds what another server has written meanwhile."""
    h = asked(hand)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RequestState.RETRY)
    h.put(h.prompt(8))
    h.until_state(a, RequestState.STAGED, patience=h.config.limits.retry_interval_ticks + 3)
    assert 2 == h.machine(a).issues


def test_our_own_write_ends_it(hand):
    """The acknowledgement wakes the sibling that was declined, in the same tick."""
    h = asked(hand, retry_interval_ticks=100)
    missed(h)
    sibling = h.arrive("sibling", h.prompt(8))
    h.tick()
    h.run("writer", h.prompt(8))
    h.tick()
    h.shrink(h.prompt(8), 0) if not h.core.writes else None
    h.until(lambda: h.engine.stats().stored_pages == 8)
    h.shrink(h.prompt(8), 0)
    h.until_state(sibling, RequestState.LOOKUP, RequestState.STAGED, RequestState.COVERED, patience=3)


@pytest.mark.parametrize("pages", [4, 12])
def test_only_prompts_that_begin_with_the_missing_page_are_declined(hand, pages):
    """Whatever their length; a prompt that goes on from elsewhere asks."""
    h = asked(hand)
    missed(h)
    h.arrive("same", h.prompt(pages))
    h.arrive("other", h.prompt(pages, 2))
    h.tick()
    assert 2 == h.store.lookups


def test_a_store_that_fails_has_said_nothing(hand):
    """An error is no miss: the next sibling asks."""
    h = asked(hand)
    h.store.fail_next(1)
    missed(h)
    h.arrive("sibling", h.prompt(8))
    h.tick()
    assert 2 == h.store.lookups


def test_a_page_in_the_store_behind_a_missing_head_is_no_reason(hand):
    """What was found, but too short, declines nobody: others may need less."""
    h = asked(hand, prefetch_threshold_tokens=64)
    h.put(h.prompt(2))
    missed(h)
    h.arrive("sibling", h.prompt(8))
    h.tick()
    assert 2 == h.store.lookups


def test_where_several_components_end_a_hit_a_longer_prompt_asks(hand):
    """Its window may be whole at a later page."""
    window = ComponentConfig(
        name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=32, device_pages=64, staging_pages=20
    )
    h = asked(hand, components=(window,), chunk_tokens=160)
    missed(h)
    h.arrive("sibling", h.prompt(12))
    h.tick()
    assert 2 == h.store.lookups
