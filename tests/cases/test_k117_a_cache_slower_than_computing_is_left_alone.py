"""K117: waiting for the cache took longer than computing what it brought.

Here measured pace decides, in ticks and tokens that all ranks share: a store that costs more than it brings is left
alone, and that is counted, logged, and told of each request.
"""

from __future__ import annotations

import logging

from stagehold.cache.stores.simulated import Delays
from stagehold.testing.hand import Hand

PAGES = 8


def served(h: Hand, family: int) -> int:
    """Ticks from arrival to admission of a request whose pages the store has."""
    tokens = h.prompt(PAGES, family)
    h.put(tokens, 0, PAGES)
    handle, begun = h.arrive(f"r{family}", tokens), h.now
    h.tick()
    while not getattr(h.visit(handle), "admitted", False):
        h.tick()
    h.compute(handle)
    h.engine.finish(handle)
    return h.now - begun


def waits(hand, gate: str) -> tuple[list[int], Hand]:
    worth = {"prefill_tokens_per_tick": PAGES * 16} if gate == "auto" else {}
    h = hand(
        delays=Delays(exists=(1, 1), get=(60, 60), put=(1, 1)), fetch_gate=gate, **worth,
        wait_base_ticks=2, wait_per_page_ticks=20.0, wait_cap_ticks=200,
    )  # fmt: skip
    return [served(h, family) for family in range(1, 6)], h


def test_a_store_that_does_not_pay_is_left_alone(hand, caplog) -> None:
    """Computing takes one tick and fetching sixty: the first request finds out, the others do not wait."""
    caplog.set_level(logging.WARNING)
    without, _ = waits(hand, "off")
    with_gate, h = waits(hand, "auto")
    assert min(without) > 60
    assert max(with_gate[1:]) <= 2
    assert with_gate[0] < without[0]
    stats = h.engine.stats()
    assert 1 == stats.gate_closings
    assert stats.declines["losing"] >= 4
    assert 1 == sum("store off" in record.getMessage() for record in caplog.records)


def test_a_store_that_pays_is_asked(hand) -> None:
    """Planted the other way: nothing is closed where pages come sooner than they are computed."""
    h = hand(fetch_gate="auto", prefill_tokens_per_tick=16, delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 1)))
    for family in range(1, 6):
        served(h, family)
    assert 0 == h.engine.stats().gate_closings
    assert 5 * PAGES * 16 == h.engine.stats().spliced
