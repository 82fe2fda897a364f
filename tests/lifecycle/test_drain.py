"""The durable end: a drain finishes or gives up every write and says which; the next start finds what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagehold import Drained, HostMode
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.simulated import Delays
from stagehold.cache.stores.workers import WorkerStore
from stagehold.specs.request import RequestState
from stagehold.testing.hand import AT_ONCE, Hand

BYTES = {"parts": 2, "page_part_bytes": 512, "staging_pages": 80}


def of_files(hand, folder: Path, **settings) -> Hand:
    """An engine over page files."""
    return hand(store=WorkerStore(FileStore(folder)), **BYTES, **settings)


def computed(h: Hand, rid: str, tokens, value: int) -> None:
    """A request whose pages hold `value`."""
    a = h.arrive(rid, tokens)
    h.admit(a)
    data = h.machine(a).data
    slots = h.engine.extend(a, data.prompt_tokens - data.n_tokens).slots
    h.engine.device_bytes.tensor[:, list(slots)] = value
    h.engine.finish(a)


@pytest.mark.parametrize("mode", list(HostMode))
def test_a_second_start_finds_the_acknowledged_pages_and_no_others(hand, tmp_path, mode):
    """Three prompts are drained, the fourth has no time to be: files, hits and bytes of the next engine."""
    first = of_files(hand, tmp_path, host_memory_mode=mode)
    for family in range(1, 4):
        computed(first, f"r{family}", first.prompt(8, family), family)
    drained = first.engine.drain(5_000, pause=lambda: first.store.wait(0.01))
    assert Drained(stored=24, dropped={}, in_flight=0) == drained
    computed(first, "late", first.prompt(8, 4), 4)
    assert Drained(stored=0, dropped={"not_begun": 8}, in_flight=0) == first.engine.drain(0)
    first.engine.close()

    second = of_files(hand, tmp_path, host_memory_mode=mode)
    assert 24 + 1 == len(FileStore(tmp_path).files())  # and the page of the self-test
    for family, hit in ((1, 128), (2, 128), (3, 128), (4, 0)):
        a = second.arrive(f"r{family}", second.prompt(8, family))
        second.until_state(a, RequestState.STAGED, RequestState.RETRY)
        second.until(lambda a=a: getattr(second.visit(a), "admitted", False))
        assert hit == second.machine(a).data.store_hit_tokens
        slots = list(second.engine.page_slots(a))[: hit // 16]
        assert not slots or {family} == set(second.engine.device_bytes.tensor[:, slots].unique().tolist())
        second.engine.abort(a)


def test_a_drain_pauses_before_each_of_its_ticks(hand):
    """For stores whose time is not the tick's; where nothing is to be written it does neither."""
    h, paused = hand(), []
    assert Drained(stored=0, dropped={}, in_flight=0) == h.engine.drain(9, pause=lambda: paused.append(h.now))
    assert [] == paused
    h.run("a", h.prompt(4))
    before = h.now
    assert 4 == h.engine.drain(9, pause=lambda: paused.append(h.now)).stored
    assert list(range(before, h.now)) == paused


def test_a_drain_ends_when_the_last_write_has(hand):
    """It takes no more ticks than that."""
    h = hand(delays=Delays(exists=(1, 1), get=(1, 1), put=(5, 5)))
    h.run("a", h.prompt(4))
    before = h.now
    assert 4 == h.engine.drain(10_000).stored
    assert h.now - before < 12


def test_each_reason_is_told_with_its_pages(hand):
    """Failed for good, evicted before the copy, in flight at the end, not begun."""
    h = hand(tries=1, delays=AT_ONCE, staging_pages=80)
    h.run("fails", h.prompt(4, 1))
    h.tick()
    h.store.fail_next(1)
    h.tick()
    h.run("evicted", h.prompt(3, 2))
    h.shrink(h.prompt(3, 2), 0)
    drained = h.engine.drain(20)
    assert (0, {"failed": 4, "evicted": 3}, 7) == (drained.stored, drained.dropped, drained.unwritten)
    h.run("flies", h.prompt(5, 3))
    h.tick(2)
    h.store.stall()
    drained = h.engine.drain(3)
    assert (0, {}, 5) == (drained.stored, drained.dropped, drained.in_flight)
    h.store.release()


def test_what_was_dropped_is_offered_again_by_those_who_stay(hand):
    """A drain is no end: the engine goes on."""
    h = hand()
    h.run("a", h.prompt(4))
    assert {"not_begun": 4} == h.engine.drain(0).dropped
    h.run("b", h.prompt(4))
    assert 4 == h.engine.drain(20).stored


def test_whatever_happens_every_page_is_told_once(hand):
    """Stored, dropped and in flight add up to what was pending."""
    for ticks in range(12):
        h = hand(delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 6)), write_wait_limit=6)
        for family in range(1, 9):
            h.run(f"r{family}", h.prompt(5, family))
            h.tick(family % 3)
        pending = h.engine.stats().backlog_pages
        drained = h.engine.drain(ticks)
        assert pending == drained.stored + drained.unwritten
