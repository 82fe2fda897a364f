"""K51: after a page had moved between tiers, the counter of the wrong tier was changed.

Here a count of a tier is the sum of what its owners have, and every book is held against such a sum after each tick.
"""

from __future__ import annotations

import random

import pytest

from stagehold import HostMode, InvariantBroken
from stagehold.lifecycle.writes import WriteRules
from stagehold.testing.hand import Hand
from stagehold.testing.watched import LateCopies


def tiers(h: Hand) -> dict[str, tuple[int, int]]:
    """Of each tier: what its counter says, and what is there when it is counted by name."""
    core = h.core
    owners = [*core.holds.values(), *core.writes.values()]
    staged = [page for owner in owners for page in owner.data.staging]
    own = [slot for m in core.requests.values() for slot in m.data.slots[m.data.published :]]
    shown = core.tree.owned()
    return {
        "device": (core.device.size - core.device.free_count, len({*own, *shown})),
        "tree": (core.tree.total, len(shown)),
        "staging": (core.staging.used, len({*staged, *core.host.pages()})),
        "staging by owner": (core.ledger.totals["staging"], len(staged)),
        "writes": (core.write_pages, sum(len(w.data.staging) for w in core.writes.values())),
        "holds": (core.hold_pages, sum(x.data.last - x.data.start for x in core.holds.values())),
    }


def swap_a_lot(h: Hand) -> None:
    """Pages go from the device to the host, to the store, and back, whole and in part; counts are looked at."""
    dice = random.Random(51)
    for number in range(120):
        tokens = h.prompt(dice.randint(3, 10), dice.randint(1, 6), shared=dice.randint(0, 3))
        handle = h.arrive(f"r{number}", tokens)
        h.tick(dice.randint(0, 6))
        if getattr(h.visit(handle), "admitted", False) and dice.random() < 0.7:
            h.compute(handle)
            h.engine.finish(handle)
        else:
            h.engine.abort(handle)
        h.core.tree.evict(dice.choice((0, 0, 5, 64)))
        wrong = {tier: both for tier, both in tiers(h).items() if both[0] != both[1]}
        assert {} == wrong


@pytest.mark.parametrize("mode", list(HostMode))
def test_every_counter_is_the_sum_of_what_is_there(hand, mode):
    """Not only at rest: after each of hundreds of moves between tiers."""
    copies = {"copies": LateCopies(1, (1, 4))}
    h = hand(host_memory_mode=mode, device_pages=64, staging_pages=60, engine_options=copies)
    swap_a_lot(h)
    assert h.engine.stats().spliced
    assert h.engine.stats().stored_pages
    if mode is HostMode.CACHE:
        assert h.engine.stats().local


def test_a_count_of_the_wrong_tier_stops_the_next_tick(hand, monkeypatch):
    """Planted: what a write gives back is taken off the loads."""
    release = WriteRules._release

    def wrong_tier(self, w, *, keep):
        pages = len(w.data.staging)
        release(self, w, keep=keep)
        self.core.write_pages += pages
        self.core.hold_pages -= pages

    h = hand()
    monkeypatch.setattr(WriteRules, "_release", wrong_tier)
    h.run("a", h.prompt(8))
    with pytest.raises(InvariantBroken, match="pages"):
        h.tick(10)
    monkeypatch.undo()
    h.core.hold_pages, h.core.write_pages = 0, sum(len(w.data.staging) for w in h.core.writes.values())
    h.engine._parts.tick.state = type(h.engine._parts.tick.state)(0)
