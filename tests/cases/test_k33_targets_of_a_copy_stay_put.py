"""K33: publishing freed the very slots that a copy in flight was writing to, and the next owner's bytes were lost.

Here the slots of a load belong to the tree from the moment of its publication and stay under the load's own span until
the copy has ended. Whoever publishes the same pages later gets his own slots back, not those.
"""

from __future__ import annotations

import pytest

from stagehold import Misuse
from stagehold.lifecycle.core import Core
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand
from stagehold.testing.watched import LateCopies

COPY_TICKS = 10


def load_and_sibling(build, **options) -> tuple[Hand, list[int], object]:
    """A load of eight pages in flight, and a sibling that computes the same prompt; the loader has left already."""
    copies = {"copies": LateCopies(0, (COPY_TICKS, COPY_TICKS))}
    h = build(parts=2, page_part_bytes=32, engine_options={**copies, **options})
    tokens = h.prompt(8)
    h.put(tokens, body=bytes([111]) * 64)
    a = h.arrive("loads", tokens)
    h.tick(3)
    sibling = h.arrive("computes", tokens)
    h.admit(sibling)
    slots = list(h.admit(a).slots)
    h.engine.abort(a)
    assert [HoldState.LOADING] == [hold.state for hold in h.core.holds.values()]
    return h, slots, sibling


def test_a_sibling_that_publishes_the_same_pages_gets_his_own_slots_back(hand):
    """The tree goes on showing the loaded ones, and they have the right bytes."""
    h, slots, sibling = load_and_sibling(hand)
    own = set(h.engine.extend(sibling, 129).slots)
    h.engine.publish(sibling, 129)
    assert slots == list(h.engine.page_slots(sibling))[:8]
    assert 8 == sum(not h.core.device.is_out(slot) for slot in own)
    assert all(h.core.device.is_out(slot) for slot in slots)
    assert {111} == set(h.core.tensors.device.tensor[:, slots].flatten().tolist())


def test_nobody_is_given_a_slot_that_a_copy_writes_to(hand):
    """The rest of the pool is used up, and evictions are asked for; the targets stay where they are."""
    h, slots, sibling = load_and_sibling(hand)
    h.engine.extend(sibling, 129)
    h.engine.publish(sibling, 129)
    h.engine.abort(sibling)
    h.core.tree.evict(10**6)
    others = h.core.device.alloc(h.core.device.free_count)
    assert set(slots).isdisjoint(others)
    h.core.device.free(others)
    h.tick(COPY_TICKS)
    assert 8 == h.core.tree.evict(10**6)


def test_a_flush_during_the_copy_is_refused(hand):
    """It says what flies."""
    h, _, sibling = load_and_sibling(hand)
    h.engine.abort(sibling)
    with pytest.raises(Misuse, match="1 holds load"):
        h.engine.flush()
    h.tick(COPY_TICKS)
    h.engine.flush()


def last_one_wins(self, chain, start, slots, _others=None):
    """Planted: who publishes later frees what the tree had."""
    end = start + len(slots)
    before = self.tree.full_match(chain, end)
    found = self.tree.insert(chain, start, end, slots)
    if found.duplicates:
        self.device.free(self.tree.slots(chain, start, before))
    return list(self.tree.slots(chain, start, end))


def test_publication_that_frees_the_older_slots_hands_targets_out(monkeypatch):
    """Planted: the next request is given slots that the copy still writes to."""
    h, slots, sibling = load_and_sibling(Hand, strict=False)
    h.engine.extend(sibling, 129)
    monkeypatch.setattr(Core, "insert", last_one_wins)
    h.engine.publish(sibling, 129)
    monkeypatch.undo()
    other = h.arrive("other", h.prompt(4, 7))
    h.admit(other)
    assert not set(slots).isdisjoint(h.engine.extend(other, 65).slots)
