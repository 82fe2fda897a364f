"""K04: the pool was full, 99 of 100 pages were said to be evictable, and no pass of eviction freed any of them.

The scheduler tried again for 300 seconds, then a watchdog ended the process. Here the count of evictable pages is kept
with the protections themselves, so that exactly this many can be evicted; and a pass that frees nothing although the
count is positive is an error at once, with the names of those who hold something.
"""

from __future__ import annotations

import random

import pytest

from stagehold import AdmissionOutcome, InvariantBroken
from stagehold.cache.tree import Tree


def test_what_is_called_evictable_can_be_evicted(hand):
    """Three hundred rounds of growing, splitting, pinning and locking; each time all that is said to go does go."""
    h = hand(device_pages=200)
    tree, dice, receipts = h.core.tree, random.Random(4), []
    for _ in range(300):
        pages = dice.randint(1, 12)
        tokens = h.prompt(pages, dice.randint(1, 9), shared=dice.randint(0, pages))
        h.grow(tokens, pages)
        live = h.live(tokens)
        if live and tree.protect_cost(h.chain(tokens), live) <= 30:
            receipts.append((tree.unpin, tree.pin(h.chain(tokens), dice.randint(1, live))))
            receipts.append((tree.unlock, tree.lock(h.chain(tokens), dice.randint(1, live))))
        wanted = tree.evictable
        assert wanted == tree.evict(10**6)
        assert 0 == tree.evictable
        while len(receipts) > 6:
            give, receipt = receipts.pop(dice.randrange(len(receipts)))
            give(receipt)
    for give, receipt in receipts:
        give(receipt)
    assert tree.total == tree.evictable == tree.evict(10**6)


def test_a_pass_that_frees_nothing_says_who_blocks(hand, monkeypatch):
    """Planted: the order of eviction has lost its leaves. One pass, no second, and the receipt is named."""
    h = hand()
    for family in (1, 2):
        h.grow(h.prompt(8, family), 8)
    lock = h.core.tree.lock(h.chain(h.prompt(8)), 8)
    monkeypatch.setattr(type(h.core.tree.order), "victim", lambda _self: None)
    with pytest.raises(InvariantBroken, match=r"nothing freed of 8.*8 of them evictable.*receipt \d+ at 8"):
        h.core.tree.evict(4)
    monkeypatch.undo()
    h.core.tree.unlock(lock)


def test_a_full_pool_under_locks_is_answered_and_not_tried_again(hand):
    """Everything is held: a visit says so and evicts nothing; when the lock goes, the next one is admitted."""
    h = hand(device_pages=40, largest_request_tokens=320)
    for family in (1, 2):
        h.grow(h.prompt(20, family), 20)
    locks = [h.core.tree.lock(h.chain(h.prompt(20, family)), 20) for family in (1, 2)]
    a = h.arrive("a", h.prompt(10, 3))
    assert AdmissionOutcome.NO_ROOM is h.visit(a).outcome
    assert 40 == h.core.tree.total
    h.core.tree.unlock(locks.pop())
    assert h.admit(a).admitted
    h.core.tree.unlock(locks.pop())


def test_a_count_that_includes_the_held_ones_ends_in_an_error_and_not_in_a_loop(hand, monkeypatch):
    """Planted: every page of the tree is called evictable. The request is let in, and the allocation raises."""
    h = hand(device_pages=40, largest_request_tokens=320)
    for family in (1, 2):
        h.grow(h.prompt(20, family), 20)
    locks = [h.core.tree.lock(h.chain(h.prompt(20, family)), 20) for family in (1, 2)]
    a = h.arrive("a", h.prompt(10, 3))
    monkeypatch.setattr(Tree, "evictable", property(lambda self: self.total))
    h.admit(a)
    with pytest.raises(InvariantBroken, match=r"11 device pages were promised, 0 free|nothing freed of"):
        h.engine.extend(a, 161)
    monkeypatch.undo()
    h.engine.abort(a)
    for lock in locks:
        h.core.tree.unlock(lock)
