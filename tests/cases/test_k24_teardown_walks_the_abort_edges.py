"""K24: tearing a store down dropped its records but not the locks on anchors, and counted back the wrong amounts.

What was subtracted was the span that had been asked for, not what had been allocated after trimming. Here a teardown
sends every machine along its own edge, and the ledger gives back what was entered.
"""

from __future__ import annotations

import pytest

from stagehold import AttachmentState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand


def trimmed_fetch(h: Hand) -> None:
    """A hold of 12 pages found, of which the tree holds 5 by the time of its IO commit; its fetch hangs."""
    tokens = h.prompt(12)
    h.put(tokens)
    h.arrive("a", tokens)
    h.tick()
    h.grow(tokens, 5)
    h.tick()
    assert {"staging": 7, "pin": 5} == {name: h.books()[name] for name in ("staging", "pin")}


@pytest.mark.parametrize("teardown", ["detach", "close", "flush"])
def test_a_teardown_gives_back_pins_and_exactly_what_was_allocated(hand, teardown):
    """Pins at once, staging at the end of IO; every count comes back to zero, none below."""
    h = hand(delays=SLOW_GETS)
    trimmed_fetch(h)
    getattr(h.engine, teardown)()
    assert 0 == h.core.tree.pinned
    if teardown != "close":
        h.tick(110)
    assert h.config.staging_pages == h.core.staging.free_count
    assert 0 == h.core.hold_pages
    assert all(units == 0 for name, units in h.core.ledger.totals.items() if name != "link")


def test_prefixes_can_be_evicted_after_a_teardown(hand):
    """A forgotten lock would hold them for ever."""
    h = hand(delays=SLOW_GETS)
    trimmed_fetch(h)
    h.engine.detach()
    assert 5 == h.core.tree.evictable == h.core.tree.evict(64)
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 200)


def test_fetching_again_after_a_reattach_starts_from_clean_books(hand):
    """The same store, the same span: nothing is left of the first life."""
    h = hand(delays=SLOW_GETS)
    trimmed_fetch(h)
    h.engine.detach()
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 200)
    h.store._delays = AT_ONCE
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is AttachmentState.ATTACHED, 20)
    b = h.arrive("b", h.prompt(12))
    h.tick(4)
    assert 7 * 16 == h.admit(b).store_hit_tokens
