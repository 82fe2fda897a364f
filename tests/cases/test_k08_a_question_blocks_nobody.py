"""K08: a request that the store knew nothing of blocked the queue.

It was registered as one that fetches before the store had answered, with buffers of its own, and the scheduler waited
for it. Here a lookup is a token in a count and nothing else: no buffer, no pin, no slot, and whoever is behind it is
visited in the same pass.
"""

from __future__ import annotations

import pytest

from stagehold import PrefetchPolicy, RequestState, SkipReason


def test_a_pending_question_owns_nothing_but_its_token(hand):
    """Thirty prompts with live heads, thirty lookups that hang, and the device is as free as before."""
    h = hand(device_pages=200)
    room = h.core.room()
    for number in range(30):
        tokens = h.prompt(8, number + 1)
        h.grow(tokens, 3)
    room = h.core.room()
    h.store.stall()
    for number in range(30):
        h.arrive(f"r{number}", h.prompt(8, number + 1))
    h.tick(3)
    assert {"query": 30} == h.books()
    assert (room, h.config.staging_pages, 0) == (h.core.room(), h.core.staging.free_count, h.core.tree.pinned)


def test_whoever_needs_nothing_is_admitted_past_those_who_ask(hand):
    """In the very pass, in front of and behind the ones that wait."""
    h = hand(device_pages=200)
    h.store.stall()
    asks = [h.arrive(f"asks{number}", h.prompt(8, number + 1)) for number in range(10)]
    short = h.arrive("short", h.prompt(1, 50))
    h.tick()
    assert {SkipReason.WAITING_LOOKUP} == {h.visit(handle).reason for handle in asks}
    assert h.admit(short).admitted


@pytest.mark.parametrize(("policy", "ticks"), [(PrefetchPolicy.BEST_EFFORT, 0), (PrefetchPolicy.TIMEOUT, 32)])
def test_a_miss_costs_its_own_request_no_more_than_the_policy_says(hand, policy, ticks):
    """The store never answers; the request that asked is admitted when its budget is spent, and the token returns."""
    h = hand(prefetch_policy=policy)
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert ticks == h.until(lambda: getattr(h.visit(a), "admitted", False), 100)
    assert 0 == h.books().get("query", 0)


def test_an_answer_that_is_a_miss_lets_the_request_in_at_once(hand):
    """It goes to an armed retry, which delays no admission."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    assert RequestState.RETRY is h.engine.state_of(a)
    assert h.admit(a).admitted
