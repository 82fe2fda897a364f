"""K12: an engine hung for good because the server that it asks for prefixes was not up yet.

Here a store that is not ready is a store without pages: its self-test runs beside the service, the link says where it
stands, and requests are admitted from the first pass on.
"""

from __future__ import annotations

import pytest

from stagehold import AttachmentState, RequestState
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.testing.hand import AT_ONCE, Hand


def silent(hand, **settings) -> Hand:
    """An engine whose store does not answer from the start."""
    store = SimulatedStore(delays=AT_ONCE)
    store.stall()
    return hand(store=store, attach=False, **settings)


def test_requests_are_served_while_the_store_is_not_up(hand):
    """In the pass in which they arrive, one after the other."""
    h = silent(hand)
    for number in range(30):
        h.tick()
        assert 0 == h.run(f"r{number}", h.prompt(8, number + 1)).store_hit_tokens
    assert AttachmentState.ATTACHING is h.engine.attachment


def test_the_link_says_that_the_store_never_came(hand):
    """At the limit it is given up, and counted; nobody waits for it, and nobody asks it."""
    h = silent(hand, attach_limit=20)
    waits = h.arrive("waits", h.prompt(8))
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 25)
    assert RequestState.CAPPED is h.engine.state_of(waits)
    assert 1 == h.engine.stats().count("attachment_timeout").taken
    assert h.admit(waits).admitted


@pytest.mark.parametrize("after", [1, 5, 15])
def test_a_store_that_comes_up_in_time_is_used_by_those_who_still_wait(hand, after):
    """The launch queue has kept them."""
    h = silent(hand, attach_limit=20)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(after)
    h.store.release()
    h.until_state(a, RequestState.STAGED, patience=20)
    h.tick(2)
    assert 128 == h.admit(a).store_hit_tokens


def test_a_store_that_came_too_late_can_be_attached_again(hand):
    """The same process, another try."""
    h = silent(hand, attach_limit=20)
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 25)
    again = SimulatedStore(delays=AT_ONCE, medium=h.store.medium)
    h.store = again
    h.engine.attach(again)
    h.until(lambda: h.engine.attachment is AttachmentState.ATTACHED, 10)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 128 == h.admit(a).store_hit_tokens
