"""Copies of an engine's state: the same continuation gives the same records, whatever happened in between."""

from __future__ import annotations

import pytest

from stagehold import AttachmentState, HostMode, Misuse, Skip
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.simulated import Delays, Rates, SimulatedStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.testing.hand import Hand

UNSTEADY = Delays(exists=(1, 4), get=(1, 9), put=(1, 9))


def traffic(h: Hand, seed: int, passes: int = 40) -> list[bytes]:
    """Some passes of requests that arrive, wait, run and end, chosen by `seed`; the digest after each."""
    digests, waiting = [], [m.data.handle for m in h.engine._roster.alive.values() if m.state.name != "COMMITTED"]
    for number in range(passes):
        word = (seed * 7919 + number * 104729) % 1009
        if word % 3 == 0:
            tokens = h.prompt(4 + word % 20, 1 + word % 5, shared=word % 4)
            waiting.append(h.arrive(f"t{seed}-{number}", tokens))
        h.tick()
        for handle in list(waiting):
            admission = h.visit(handle)
            if not isinstance(admission, Skip) and admission.admitted:
                h.compute(handle)
                h.engine.finish(handle)
                waiting.remove(handle)
            elif word % 13 == 0:
                h.engine.abort(handle)
                waiting.remove(handle)
        if word % 5 == 0:
            h.core.tree.evict(6)
        digests.append(h.engine.digest())
    return digests


def unsteady(hand, **settings) -> Hand:
    store = SimulatedStore(3, delays=UNSTEADY, rates=Rates(fail=0.05, short=0.02))
    return hand(store=store, page_size=16, retry_interval_ticks=2, **settings)


@pytest.mark.parametrize("mode", list(HostMode))
def test_the_same_continuation_gives_the_same_digests(hand, mode):
    """After a restore the engine does again exactly what it did."""
    h = unsteady(hand, host_memory_mode=mode)
    traffic(h, 1)
    saved = h.engine.snapshot()
    first = traffic(h, 2)
    h.engine.restore(saved)
    assert first == traffic(h, 2)


def test_a_snapshot_can_be_used_again(hand):
    """It is not eaten by a restore."""
    h = unsteady(hand)
    traffic(h, 1, 15)
    saved = h.engine.snapshot()
    first = traffic(h, 2, 15)
    for seed in (3, 4):
        h.engine.restore(saved)
        traffic(h, seed, 15)
    h.engine.restore(saved)
    assert first == traffic(h, 2, 15)


def test_another_continuation_gives_other_digests(hand):
    """The comparison above can fail."""
    h = unsteady(hand)
    traffic(h, 1, 10)
    saved = h.engine.snapshot()
    first = traffic(h, 2, 10)
    h.engine.restore(saved)
    assert first != traffic(h, 3, 10)


def test_bytes_come_back_too(hand):
    """Device and staging tensors are part of the state; a fetch in flight lands where it was sent."""
    h = hand(parts=2, page_part_bytes=32, delays=Delays(exists=(1, 1), get=(5, 5), put=(1, 1)))
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    saved, then = h.engine.snapshot(), h.core.tensors.device.tensor.clone()
    h.tick(10)
    first = h.admit(a).slots
    before = h.core.tensors.device.tensor.clone()
    h.core.tensors.device.tensor.fill_(77)
    h.core.tensors.staging.tensor.fill_(77)
    h.engine.restore(saved)
    assert then.equal(h.core.tensors.device.tensor)
    h.tick(10)
    assert first == h.admit(a).slots
    assert bool((before == h.core.tensors.device.tensor).all())


def test_a_self_test_in_flight_survives(hand):
    """The link stands where it stood, and comes up again."""
    h = hand(attach=False, parts=2, page_part_bytes=32)
    h.tick()
    assert AttachmentState.ATTACHING is h.engine.attachment
    saved = h.engine.snapshot()
    h.tick(2)
    assert AttachmentState.ATTACHED is h.engine.attachment
    h.engine.restore(saved)
    assert AttachmentState.ATTACHING is h.engine.attachment
    h.tick(2)
    assert AttachmentState.ATTACHED is h.engine.attachment


def test_an_open_visit_is_part_of_the_state(hand):
    """Its plan is good again after the restore."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    plan = h.engine.select(a, 1000)
    saved = h.engine.snapshot()
    first = h.engine.commit(plan)
    h.engine.restore(saved)
    assert first == h.engine.commit(plan)


def test_a_store_with_workers_cannot_be_copied(hand, tmp_path):
    """It is named, and what to use instead."""
    h = hand(store=WorkerStore(FileStore(tmp_path)))
    with pytest.raises(Misuse, match="workers"):
        h.engine.snapshot()


def test_statistics_go_back_as_well(hand):
    """They are counted from the records, and the records are gone."""
    h = unsteady(hand)
    traffic(h, 1, 10)
    stats, saved = h.engine.stats(), h.engine.snapshot()
    traffic(h, 2, 10)
    assert stats != h.engine.stats()
    h.engine.restore(saved)
    assert stats == h.engine.stats()
