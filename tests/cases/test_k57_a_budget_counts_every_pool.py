"""K57: loading a sliding window took pages that no budget had counted: out of memory right after the check had passed.

Here admission counts every pool that the commit will touch: what the request may fill of each by its own arithmetic,
what its lock takes from the evictable, and the transient slots that a splice fills before the request has begun.
"""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome, ComponentConfig, ComponentKind, NoRoom
from stagehold.lifecycle.admission import AdmissionRules

SWA = ComponentConfig(
    name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=48, device_pages=40, staging_pages=12
)
STATE = ComponentConfig(name="state", kind=ComponentKind.CHECKPOINT, device_pages=12, staging_pages=6)
NEED = {"full": 13, "swa": 3 + 3 + 1 + 3 + 1, "state": 1 + 1 + 1}
"""Behind 12 of 15 pages: a window, a chunk and a page to fill, the hold's window to load, and one that stays free."""


def waiting(hand):
    """A request whose hold of 12 pages, window and checkpoint is ready; nothing is live."""
    h = hand(components=(SWA, STATE), chunk_tokens=64, prefetch_threshold_tokens=16, pin_fraction=0.0)
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens)
    h.tick(3)
    return h, a


def squeeze(h, name: str, room: int):
    """Others have all but `room` slots of a pool."""
    stock = h.core.stocks.by_name[name]
    return stock, h.core.allocate(stock, h.core.room_of(stock) - room)


@pytest.mark.parametrize("name", ["swa", "state"])
def test_what_a_splice_fills_is_part_of_the_budget(hand, name):
    """A slot short, and the commit is put off with everything as it was; with it the request runs to its end."""
    for room, said in ((NEED[name] - 1, AdmissionOutcome.DEFERRED), (NEED[name], AdmissionOutcome.ADMITTED)):
        h, a = waiting(hand)
        stock, taken = squeeze(h, name, room)
        assert said is h.visit(a).outcome
        assert 0 <= h.core.room_of(stock)
        if said is AdmissionOutcome.ADMITTED:
            assert not isinstance(h.engine.extend(a, 33), NoRoom)
        stock.device.free(taken)


def test_a_window_does_not_pay_for_full_attention_nor_the_other_way(hand):
    """15 pages of FULL are needed: pools are counted each by itself."""
    for name, room in (("full", 14), ("swa", 1), ("state", 1)):
        h, a = waiting(hand)
        stock, taken = squeeze(h, name, room)
        assert AdmissionOutcome.DEFERRED is h.visit(a).outcome
        stock.device.free(taken)
        assert h.admit(a).admitted


def test_a_budget_that_leaves_the_load_out_breaks_its_promise(hand, monkeypatch):
    """Planted: the check of a request without a hold is asked instead, which is the naive one."""
    monkeypatch.setattr(
        AdmissionRules, "_fits_spliced", lambda self, data, hold, live: self.fits(data, min(live, hold.last))
    )
    h, a = waiting(hand)
    stock, taken = squeeze(h, "swa", NEED["swa"] - 2)
    assert AdmissionOutcome.ADMITTED is h.visit(a).outcome
    assert -1 == h.core.room_of(stock), "a slot more is promised than can be had"
    stock.device.free(taken)
