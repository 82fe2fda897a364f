"""K79: a batch of puts was rejected because of one key, and the pages of all the others were lost for good.

Here a put answers for each key, a rejection is no fault of the store, and the batch comes again when there may be
room: what was kept the first time is not sent for nothing, and what is never kept is not believed.
"""

from __future__ import annotations

from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.specs.store import StoreState
from stagehold.testing.hand import AT_ONCE, Hand


class Choosy(SimulatedStore):
    """A store that has no room for some pages now."""

    def __init__(self) -> None:
        super().__init__(delays=AT_ONCE)
        self.no_room_for: set[bytes] = set()
        self.said: list[tuple[Verdict, ...]] = []

    def _write(self, name, body):
        return Verdict.REFUSED if name in self.no_room_for else super()._write(name, body)

    def poll(self, tick):
        reports = super().poll(tick)
        self.said += [found.verdicts for found in reports if found.done and len(found.verdicts) == 8]
        return reports


def batch(hand) -> tuple[Hand, Choosy, list[bytes]]:
    """Eight pages to be written in one batch, the fifth of which is rejected."""
    store = Choosy()
    h = hand(store=store, staging_pages=80)
    names = h.names(h.prompt(8))
    store.no_room_for = {names[4]}
    h.run("writer", h.prompt(8))
    h.tick(3)
    return h, store, names


def test_the_others_of_the_batch_are_stored_and_said_to_be(hand):
    """Seven of eight; each key has its verdict."""
    h, store, names = batch(hand)
    assert [(Verdict.STORED,) * 4 + (Verdict.REFUSED,) + (Verdict.STORED,) * 3] == store.said
    assert [name for name in names if name not in store.no_room_for] == [n for n in names if store.contains(n)]
    assert 1 == h.engine.stats().count("write_put_ended_failed").taken


def test_what_was_kept_is_believed_at_once_and_not_sent_again(hand):
    """The four in front of it; the next try is about the others."""
    h, store, names = batch(hand)
    assert [True] * 4 + [False] * 4 == [h.core.beliefs.knows(name[:32]) for name in names]
    (left,) = h.core.writes.values()
    assert (4, 8, 4) == (left.data.first, left.data.last, h.engine.stats().stored_pages)
    sent: list[int] = []
    put = store.put
    store.put = lambda ticket, keys, *more: (sent.append(len(keys)), put(ticket, keys, *more))
    h.until(lambda: not h.core.writes, 100)
    assert [4, 4] == sent


def test_a_rejection_is_no_fault_of_the_store(hand):
    """A full store answers questions as well as any."""
    h, _, _ = batch(hand)
    for family in range(2, 12):
        h.store.no_room_for |= set(h.names(h.prompt(8, family)))
        h.run(f"r{family}", h.prompt(8, family))
        h.tick(4)
    assert StoreState.HEALTHY is h.core.breaker.state


def test_the_batch_comes_again_when_there_may_be_room(hand):
    """After its pause, by itself, and then all of it is there and believed."""
    h, store, names = batch(hand)
    store.no_room_for = set()
    h.until(lambda: not h.core.writes, 40)
    assert all(store.contains(name) for name in names)
    assert all(h.core.beliefs.knows(name[:32]) for name in names)


def test_what_is_rejected_for_good_is_not_believed_and_is_a_miss(hand):
    """A later turn fetches the four pages in front of it and computes the rest."""
    h, _, _ = batch(hand)
    h.until(lambda: not h.core.writes, 100)
    assert 1 == h.engine.stats().count("write_put_ended_spent").taken
    tokens = h.prompt(8)
    h.shrink(tokens, 0)
    later = h.arrive("later", tokens)
    h.tick(4)
    assert 64 == h.admit(later).store_hit_tokens
