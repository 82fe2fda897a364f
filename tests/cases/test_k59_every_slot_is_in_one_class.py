"""K59: one page was counted as available and as evictable; more was promised than there was, and the process ended.

Here every slot is free, or the tree's, or one request's, and the room of an admission is the sum of disjoint parts.
"""

from __future__ import annotations

import random

import pytest

from stagehold import InvariantBroken
from stagehold.cache.pools import Pool
from stagehold.testing.hand import Hand


def partition(h: Hand) -> dict[str, list[int]]:
    """The classes of slots that are out."""
    own = {f"{m.data.handle}": m.data.slots[m.data.published :] for m in h.core.requests.values()}
    return {"tree": h.core.tree.owned(), **own}


def churn(h: Hand, rounds: int) -> None:
    """Requests of all lengths and fates; after each act the classes are compared slot by slot."""
    dice, running = random.Random(59), []
    for number in range(rounds):
        tokens = h.prompt(dice.randint(2, 12), dice.randint(1, 8), shared=dice.randint(0, 2))
        if dice.random() < 0.5:
            h.put(tokens)
        handle = h.arrive(f"r{number}", tokens, new=dice.randint(1, 40))
        h.tick(dice.randint(0, 4))
        if getattr(h.visit(handle), "admitted", False):
            h.engine.extend(handle, dice.randint(1, 16))
            running.append(handle)
        else:
            h.engine.abort(handle)
        h.core.device.check(partition(h))
        if len(running) > 3:
            end = running.pop(dice.randrange(len(running)))
            dice.choice((h.engine.abort, h.engine.finish))(end)
            h.core.device.check(partition(h))
        core = h.core
        held = core.tree.total - core.tree.evictable
        own = sum(len(slots) for name, slots in partition(h).items() if name != "tree")
        assert core.device.size == core.device.free_count + core.tree.evictable + held + own


def test_classes_are_disjoint_and_whole_at_every_moment(hand):
    """Two hundred requests."""
    h = hand(device_pages=80)
    churn(h, 200)
    assert h.engine.stats().spliced


def test_what_is_promised_can_always_be_had(hand):
    """The room that admission saw is there when it is asked for, in whatever order the running ones ask."""
    h = hand(device_pages=64)
    for family in range(1, 9):
        h.grow(h.prompt(8, family), 8)
    running = []
    for number in range(12):
        handle = h.arrive(f"r{number}", h.prompt(6, number % 8 + 1), new=60)
        if getattr(h.visit(handle), "admitted", False):
            running.append(handle)
    assert len(running) > 3
    dice = random.Random(3)
    left = {handle: 6 * 16 + 1 + 60 - h.machine(handle).data.n_tokens for handle in running}
    while left:
        handle = dice.choice(list(left))
        step = min(left[handle], dice.randint(1, 30))
        assert type(h.engine.extend(handle, step)).__name__ == "Extension"
        left[handle] -= step
        if not left[handle]:
            del left[handle]


def test_a_page_that_is_free_and_in_the_tree_is_named(hand):
    """By the check of the pool, and by the books of the next tick."""
    h = hand()
    h.grow(h.prompt(8), 8)
    slot = h.core.tree.owned()[0]
    h.core.device.free([slot])
    with pytest.raises(InvariantBroken, match=rf"slot {slot} is in 'free' and in 'tree'"):
        h.core.device.check(partition(h))
    with pytest.raises(InvariantBroken, match="device: 7 slots are out: 8 in the tree"):
        h.tick()
    assert [slot] == h.core.device.alloc(1)
    h.engine._parts.tick.state = type(h.engine._parts.tick.state)(0)


def test_an_eviction_that_keeps_what_it_frees_would_be_seen(monkeypatch):
    """Planted: a pool that takes slots back and calls them its own again only at the second time."""
    free, seen = Pool.free, set()

    def lazy(self, slots):
        late = [slot for slot in slots if slot in seen]
        seen.update(slots)
        free(self, late)

    h = Hand(device_pages=80, engine_options={"strict": False})
    monkeypatch.setattr(Pool, "free", lazy)
    with pytest.raises(InvariantBroken, match="is in no class"):
        churn(h, 200)
