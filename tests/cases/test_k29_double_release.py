"""K29: a reference count went below zero, and the code set it back to zero.

The count was then wrong by one for ever, and a page was evicted under its reader. Here giving something back twice is
refused by name where it happens, by every book that hands things out, and the count is as it was.
In a service the refusal is counted and told of, and what it names is freed by nobody.
"""

from __future__ import annotations

import pytest

from stagehold import InvariantBroken
from stagehold.cache.errors import ReceiptRefused, SlotRefused
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.data import Handle
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.ledger import Ledger
from stagehold.testing.hand import Hand


def test_a_pin_is_given_back_once(hand):
    """The second time its receipt is dead, and the other pin over the same path is untouched."""
    h = hand()
    tokens = h.prompt(4)
    h.grow(tokens, 4)
    one, two = (h.core.tree.pin(h.chain(tokens), 4) for _ in range(2))
    h.core.tree.unpin(one)
    with pytest.raises(ReceiptRefused, match="given back before"):
        h.core.tree.unpin(one)
    assert (4, 0) == (h.core.tree.pinned, h.core.tree.evict(4))
    h.core.tree.unpin(two)
    assert 4 == h.core.tree.evict(4)


def test_a_receipt_of_one_kind_is_no_receipt_of_another(hand):
    """A lock cannot be given back as a pin."""
    h = hand()
    tokens = h.prompt(4)
    h.grow(tokens, 4)
    lock = h.core.tree.lock(h.chain(tokens), 4)
    with pytest.raises(ReceiptRefused, match="LOCK, not a PIN"):
        h.core.tree.unpin(lock)
    h.core.tree.unlock(lock)


def test_a_slot_is_freed_once(hand):
    """And none of the others named with it is."""
    h = hand()
    slots = h.core.device.alloc(3)
    h.core.device.free(slots[:1])
    free = h.core.device.free_count
    with pytest.raises(SlotRefused, match="freed twice"):
        h.core.device.free(slots)
    assert free == h.core.device.free_count
    h.core.device.free(slots[1:])


def test_a_staging_page_has_as_many_owners_as_it_has_references(hand):
    """The last one frees it; one more is refused."""
    h = hand()
    pages = h.core.staging.alloc(2)
    h.core.staging.share(pages)
    h.core.staging.free(pages)
    assert h.config.staging_pages - 2 == h.core.staging.free_count
    h.core.staging.free(pages)
    with pytest.raises(SlotRefused, match="no reference"):
        h.core.staging.free(pages)
    assert h.config.staging_pages == h.core.staging.free_count


def test_in_a_test_the_ledger_raises(hand):
    """It names machine and resource, and the count is as it was."""
    h = hand()
    h.core.ledger.take("pin", 10**6, b"")
    h.core.ledger.give("pin", 10**6)
    with pytest.raises(InvariantBroken, match="machine 1000000 gives back pin, which it does not own"):
        h.core.ledger.give("pin", 10**6)
    assert 0 == h.core.ledger.totals["pin"]


def free_at_the_cut(self, h, ended):
    """Planted: a fetch that is given up frees its buffer, and the end of its IO will free it again."""
    self._unpin(h)
    self.core.close_span(h.number)
    self.core.free_staging(self.core.stocks.spine, h.data.staging)
    self.core.ledger.give("staging", h.number)
    self.core.post(self._tell, h, ended)


def third_owner(h: Hand, monkeypatch) -> tuple[Handle, Handle]:
    """A service with that fault. The buffer is freed, a second fetch gets it, it is freed again, a third comes."""
    monkeypatch.setattr(HoldRules, "_abandon", free_at_the_cut)
    h.put(h.prompt(8))
    first = h.arrive("first", h.prompt(8))
    h.tick(2)
    h.engine.abort(first)
    handles = []
    for family in (2, 3):
        h.put(h.prompt(8, family), body=bytes([family]) * 64)
        handles.append(h.arrive(f"r{family}", h.prompt(8, family)))
        h.tick(2)
    h.tick(12)
    return handles[0], handles[1]


SLOW_BYTES = {"parts": 2, "page_part_bytes": 32, "delays": Delays(exists=(1, 1), get=(3, 3), put=(1, 1))}


def test_in_service_a_second_release_is_counted_told_of_and_frees_nothing(hand, monkeypatch):
    """The pages under their second owner stay his: the third one gets others."""
    told: list[str] = []
    listen = {"on_violation": lambda _tick, what, *, book: told.append(f"{book}: {what}")}
    h = hand(engine_options={"strict": False, **listen}, **SLOW_BYTES)
    second, third = third_owner(h, monkeypatch)
    assert set(h.hold_of(second).data.staging).isdisjoint(h.hold_of(third).data.staging)
    assert (1, 1) == (h.engine.stats().violations, len(told))
    assert "gives back staging, which it does not own" in told[0]
    slots = list(h.admit(second).slots)
    assert {2} == set(h.core.tensors.device.tensor[:, slots].flatten().tolist())


def test_a_count_that_is_set_right_to_zero_gives_a_page_to_two(monkeypatch):
    """Planted: a ledger that says yes to everything. One request reads what another one fetched."""
    give = Ledger.give
    monkeypatch.setattr(Ledger, "give", lambda self, resource, owner: give(self, resource, owner) or True)
    h = Hand(engine_options={"strict": False}, **SLOW_BYTES)
    second, third = third_owner(h, monkeypatch)
    assert set(h.hold_of(second).data.staging) == set(h.hold_of(third).data.staging)
    slots = list(h.admit(second).slots)
    assert {3} == set(h.core.tensors.device.tensor[:, slots].flatten().tolist())


def test_a_hold_s_second_end_is_refused(hand):
    """The machine has no row for it, so nothing can be released twice from there."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    hold = h.hold_of(a)
    h.engine.abort(a)
    before = h.core.staging.free_count
    with pytest.raises(Exception, match=r"hold.*dropped.*drop|DROPPED"):
        h.core.steps.hold.drop(hold)
    assert before == h.core.staging.free_count
