"""K42: a mask of hits was returned, and the bytes were never copied.

Two pieces of code, one that counted and one that copied, did not agree. Here the tokens that an admission reports, the
tokens that the ledger books as spliced, and the pages whose bytes are on the device come from one act.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.copies import Bytes
from stagehold.testing.service import Service


def second_time(service: Service) -> None:
    """Six prompts are computed and stored, then asked for again with an empty device."""
    service.attach()
    service.serve(range(6))
    service.drain()
    service.engine._parts.core.tree.evict(10**6)
    service.serve(range(6))


def a_service() -> Service:
    return Service(SimulatedStore(1, delays=Delays((1, 1), (1, 3), (1, 2))), page_bytes=1024, pace_seconds=0.0)


def test_every_reported_token_has_its_bytes():
    """The model reads each of them, and each is right."""
    with a_service() as service:
        second_time(service)
        assert [] == service.breaches()
        assert 6 * 8 * 16 == service.served.store_hit_tokens == service.engine.stats().spliced


def test_a_copy_that_is_left_out_would_be_seen(monkeypatch):
    """Planted: everything but the copy. The same report, and the bytes of nobody under it."""
    monkeypatch.setattr(Bytes, "load", lambda *_: None)
    with a_service() as service:
        second_time(service)
        assert 6 * 8 * 16 == service.served.store_hit_tokens
        assert any("phantoms" in breach for breach in service.breaches())


@pytest.mark.parametrize("delivered", [0, 8])
@pytest.mark.parametrize("live", [0, 3])
def test_what_was_not_delivered_is_not_reported(hand, delivered, live):
    """A hold that was found, fetched and verified, and then brings nothing, is no hit."""
    h = hand(engine_options={"deliver": lambda _hold, _live, _promised: delivered})
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, live)
    a = h.arrive("a", tokens)
    h.tick(3)
    admission = h.admit(a)
    brought = (8 - live) * 16 if delivered else 0
    assert (live * 16, brought) == (admission.device_hit_tokens, admission.store_hit_tokens)
    assert brought == h.engine.stats().spliced
    assert admission.hit_tokens == 16 * len(admission.slots) == live * 16 + brought
