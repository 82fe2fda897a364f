"""K17: reading from disk hung on machines without a certain direct path to the device; nobody had tried it before.

There was no fallback and no warning at the start; a note in the manual closed the report. Here there is one path, store
to staging to device, and nothing is asked of a store before a test page has gone out and come back through it. One
that takes a page and never gives it back is let go of, and the requests are computed.
"""

from __future__ import annotations

import pytest

from stagehold import AttachmentState
from stagehold.cache.stores.simulated import Delays, Rates, SimulatedStore
from stagehold.testing.hand import AT_ONCE, Hand

HALVES = {
    "reads hang": {"delays": Delays(exists=(1, 1), get=(10**6, 10**6), put=(1, 1))},
    "writes hang": {"delays": Delays(exists=(1, 1), get=(1, 1), put=(10**6, 10**6))},
    "pages come back changed": {"delays": AT_ONCE, "rates": Rates(corrupt=1.0)},
    "pages come back short": {"delays": AT_ONCE, "rates": Rates(short=1.0)},
    "pages are not kept": {"delays": AT_ONCE, "rates": Rates(lose=1.0)},
}


def broken(hand, half: str) -> Hand:
    """An engine with a store that works by half, at its first tick."""
    h = hand(store=SimulatedStore(3, **HALVES[half]), attach=False, attach_limit=30, parts=2, page_part_bytes=64)
    h.put(h.prompt(8))
    return h


@pytest.mark.parametrize("half", HALVES)
def test_a_path_that_does_not_work_both_ways_is_never_used(hand, half):
    """It answers every question, and no question is put to it."""
    h = broken(hand, half)
    h.arrive("a", h.prompt(8))
    h.until(lambda: h.engine.attachment is not AttachmentState.ATTACHING, 40)
    assert AttachmentState.DETACHED is h.engine.attachment
    h.tick(5)
    stats = h.engine.stats()
    assert (0, 0) == (stats.count("request_issue_lookup").taken, stats.fetched)
    assert 1 == stats.count("attachment_timeout").taken + stats.count("attachment_started_refused").taken


@pytest.mark.parametrize("half", HALVES)
def test_service_goes_on_without_it(hand, half):
    """Before and after it was let go of, with what the device holds."""
    h = broken(hand, half)
    for number in range(12):
        h.run(f"r{number}", h.prompt(8, 2))
        h.tick(4)
    assert AttachmentState.DETACHED is h.engine.attachment
    assert 128 == h.run("again", h.prompt(8, 2)).device_hit_tokens


def test_a_store_that_was_believed_untried_would_hold_requests_up(hand, monkeypatch):
    """Planted: the store counts as attached from the start. A hit is found, and its fetch never ends."""
    h = broken(hand, "reads hang")
    monkeypatch.setattr(type(h.core), "attached", property(lambda _self: True))
    h.core.link.state = AttachmentState.ATTACHED
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    waited = h.until(lambda: getattr(h.visit(a), "admitted", False), 100)
    assert waited > 20
    h.core.link.state = AttachmentState.ATTACHING
