"""K29: a reference count went below zero, and the code set it back to zero.

The count was then wrong by one for ever, and a page was evicted under its reader. Here giving something back twice is
refused by name where it happens, by every book that hands things out, and the count is as it was.
"""

from __future__ import annotations

import pytest

from stagehold import InvariantBroken
from stagehold.cache.errors import ReceiptRefused, SlotRefused


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


@pytest.mark.parametrize("strict", [True, False])
def test_the_ledger_refuses_in_every_mode(hand, strict):
    """Nothing is clamped, in tests or in service."""
    h = hand()
    h.engine.strict = strict
    h.core.ledger.take("pin", 10**6, b"")
    h.core.ledger.give("pin", 10**6)
    with pytest.raises(InvariantBroken, match="does not own"):
        h.core.ledger.give("pin", 10**6)
    assert 0 == h.core.ledger.totals["pin"]


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
