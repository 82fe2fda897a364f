"""What a hold is still good for when all of its span but the last page is live."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("live", "from_store"), [(6, 2), (7, 1), (8, 0)])
def test_a_span_is_covered_when_its_last_page_is_live_and_not_before(hand, live, from_store):
    """A sibling publishes some of it behind a hold that is ready: what is missing is spliced."""
    h = hand(prefetch_threshold_tokens=16)
    tokens = h.prompt(8)
    h.put(tokens)
    handle = h.arrive("a", tokens)
    h.tick(4)
    h.grow(tokens, live)
    admission = h.admit(handle)

    assert (8 * 16, from_store * 16) == (admission.hit_tokens, admission.store_hit_tokens)
