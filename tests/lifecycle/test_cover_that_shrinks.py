"""A request that was covered, and whose prefix is evicted while it waits: the store is asked before it is computed."""

from __future__ import annotations

import pytest

from stagehold import Admission, Handle, RequestState
from stagehold.testing.hand import Hand


def admitted(h: Hand, handle: Handle) -> Admission:
    """Visited in every pass until it is admitted."""
    while not isinstance(found := h.visit(handle), Admission) or not found.admitted:
        h.tick()
    return found


@pytest.mark.parametrize("gone", [8, 6, 1])
def test_a_prefix_that_goes_after_a_launch_that_asked_nobody(hand, gone):
    """All of it was live when the request arrived, so that nothing was known of the store."""
    h = hand()
    h.put(tokens := h.prompt(8))
    h.grow(tokens, 8)
    handle = h.arrive("a", tokens)
    h.tick()
    assert RequestState.COVERED is h.engine.state_of(handle)
    h.shrink(tokens, 8 - gone)
    admission = admitted(h, handle)
    worth = gone if gone > 1 else 0  # one page is less than is worth a fetch
    assert (16 * (8 - gone + worth), 16 * worth) == (admission.hit_tokens, admission.store_hit_tokens)


def test_a_sibling_splices_and_its_pages_go_again(hand):
    """The claim ended with the splice of another; the store has what was spliced then."""
    h = hand()
    h.put(tokens := h.prompt(8))
    one, two = h.arrive("one", tokens), h.arrive("two", tokens)
    h.tick(3)
    h.serve(one)
    assert RequestState.COVERED is h.engine.state_of(two)
    h.tick(2)
    h.shrink(tokens, 0)
    assert 128 == admitted(h, two).store_hit_tokens
