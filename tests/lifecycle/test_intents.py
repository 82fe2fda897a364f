"""Intents of writes: what is offered, what is not offered twice, and what a later use offers again."""

from __future__ import annotations

import logging

import pytest

from stagehold import ComponentConfig, ComponentKind, WindowWrites
from stagehold.cache.stores.simulated import Delays
from stagehold.kernels.copies import DeviceBytes
from stagehold.lifecycle.copies import Bytes
from stagehold.lifecycle.offers import FULL_SHOUT_EVERY, FULL_SHOUTS
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand

SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(100, 100))
WINDOW = ComponentConfig(
    name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=32, device_pages=64, staging_pages=20
)


def ended(h: Hand) -> None:
    h.until(lambda: not h.core.writes)


def puts(h: Hand) -> list[bytes]:
    """Names of all pages that the store is given from now on."""
    names: list[bytes] = []
    put = h.store.put

    def watched(ticket, keys, buffers, tick):
        names.extend(keys)
        put(ticket, keys, buffers, tick)

    h.store.put = watched
    return names


def test_pages_in_flight_that_come_again_under_another_node_are_not_written_twice(hand):
    """The tree forgets them during the put; another request computes them, behind a cut at another page."""
    h = hand(delays=SLOW_PUTS)
    tokens = h.prompt(8)
    names = puts(h)
    h.run("a", tokens)
    h.tick(3)
    h.shrink(tokens, 0)
    h.run("short", tokens[: 3 * 16 + 1])
    h.run("b", tokens)
    h.tick(130)
    assert 8 == len(names) == len(set(names))


def test_only_the_pages_that_are_missing_are_written_again(hand):
    """The store has lost two pages of the middle: a gap in what is believed is filled by itself."""
    h = hand()
    h.run("a", tokens := h.prompt(8))
    ended(h)
    lost = h.names(tokens, 3, 5)
    for name in lost:
        h.store.drop(name)
    h.core.beliefs.unteach(h.core.keys(h.chain(tokens), 3, 5))
    names = puts(h)
    h.run("b", h.prompt(12))
    h.run("c", tokens[: 5 * 16 + 1])
    ended(h)
    assert set(lost) <= set(names)
    assert len(names) == len(set(names)) == 2 + 4


def test_the_same_prompt_three_times_is_written_once(hand):
    """512 tokens; whatever comes after the first request puts nothing."""
    h = hand(device_pages=80, staging_pages=80, largest_request_tokens=560)
    tokens = h.prompt(32)
    names = puts(h)
    for rid in "abc":
        h.run(rid, tokens)
        ended(h)
        h.shrink(tokens, 0) if rid == "b" else None
    assert 32 == len(names)


@pytest.mark.parametrize("how", ["spent", "too late", "full", "evicted"])
def test_whatever_became_of_a_write_the_next_hit_offers_its_pages_again(hand, how):
    """Refused or dropped is not lost for good."""
    options = {"full": {"write_backlog_tokens": 4 * 16}, "too late": {"write_wait_limit": 10}, "spent": {"tries": 1}}
    h = hand(**options.get(how, {}))
    if how == "full":
        h.run("other", h.prompt(4, 2))
    if how == "too late":
        h.outage()
    tokens = h.prompt(4)
    h.run("a", tokens)
    if how == "spent":
        h.store.fail_next(1)
    if how == "evicted":
        h.shrink(tokens, 0)
    ended(h)
    assert not any(h.store.contains(name) for name in h.names(tokens))
    h.until(lambda: not h.core.store_open)
    h.run("b", tokens)
    ended(h)
    assert all(h.store.contains(name) for name in h.names(tokens))


def test_a_window_whose_write_was_dropped_is_offered_by_the_next_hit(hand):
    """Each component by itself: FULL is stored, and its window follows."""
    h = hand(components=(WINDOW,), chunk_tokens=160, tries=1)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(2)
    windows = [w for w in h.core.writes.values() if w.data.component == "swa"]
    assert windows
    for w in windows:
        h.core.steps.write.drop(w)
        h.core.settle()
    h.until(lambda: all(w.data.component == "swa" for w in h.core.writes.values()))
    h.tick(20)
    key = h.chain(tokens).page_key(3) + b"swa"
    assert not h.core.beliefs.knows(key)
    h.run("b", tokens)
    ended(h)
    assert h.core.beliefs.knows(key)


def test_a_full_backlog_is_reported_like_a_bug(hand, caplog):
    """The first three times and each thousandth, so that a log of a bad night can be read."""
    h = hand(write_backlog_tokens=16)
    offers = h.engine._parts.phases.offers
    h.run("first", h.prompt(1))
    h.run("second", tokens := h.prompt(1, 2))
    with caplog.at_level(logging.ERROR, "stagehold"):
        for _ in range(FULL_SHOUT_EVERY):
            offers.offer_span(h.chain(tokens), b"", 0, 1)
    assert FULL_SHOUTS + 1 == len(caplog.records)
    assert "since the store takes less than is written, or by a bug here" in caplog.records[0].getMessage()


def test_copies_of_one_tick_go_off_as_one(hand, monkeypatch):
    """One gather a component, whatever the number of writes; each has its own ticket and its own bytes."""
    sizes: list[int] = []
    save = Bytes.save

    def counted(self, slots, pages):
        sizes.append(len(slots))
        save(self, slots, pages)

    monkeypatch.setattr(Bytes, "save", counted)
    h = hand(parts=2, page_part_bytes=32, staging_pages=80)
    device: DeviceBytes = h.engine.device_bytes
    for family in range(1, 5):
        a = h.arrive(f"r{family}", h.prompt(3, family))
        h.admit(a)
        for page, slot in enumerate(h.engine.extend(a, 49).slots):
            device.tensor[:, slot] = 10 * family + page
        h.engine.publish(a, 48)
        h.engine.abort(a)
    h.tick()
    assert [12] == sizes
    assert 4 == sum(w.state is WriteState.COPYING for w in h.core.writes.values())
    ended(h)
    for family in range(1, 5):
        found = [set(h.store.medium.read(name)[-64:]) for name in h.names(h.prompt(3, family))]
        assert [{10 * family + page} for page in range(3)] == found


def test_several_puts_are_under_way_at_once(hand):
    """A store has more than one writer; nobody waits for the put before."""
    h = hand(delays=SLOW_PUTS, staging_pages=80)
    for family in range(1, 4):
        h.run(f"r{family}", h.prompt(4, family))
    h.tick(3)
    assert [WriteState.STORING] * 3 == [w.state for w in h.core.writes.values()]


@pytest.mark.parametrize("writes", list(WindowWrites))
def test_a_restart_goes_on_from_the_windows_that_were_stored(hand, writes):
    """All pages of a window, or the last window of what is published at once: both are enough at its end."""
    window = WINDOW.model_copy(update={"writes": writes})
    options = {"components": (window,), "chunk_tokens": 160, "staging_pages": 80}
    h = hand(**options)
    tokens = h.prompt(8)
    h.run("a", tokens)
    ended(h)
    stored = [h.core.beliefs.knows(h.chain(tokens).page_key(page) + b"swa") for page in range(8)]
    assert {WindowWrites.ALL: 8, WindowWrites.LAST: 2}[writes] == sum(stored)
    second = hand(**options, store=type(h.store)(medium=h.store.medium, delays=h.store._delays))
    b = second.arrive("b", tokens)
    second.tick(4)
    assert 128 == second.admit(b).store_hit_tokens


def test_every_counter_of_writes_has_tokens_and_bytes(hand):
    """Admitted, stored, tried again, dropped: pages of two components are of two sizes."""
    window = WINDOW.model_copy(update={"parts": 1, "page_part_bytes": 16})
    h = hand(components=(window,), chunk_tokens=160, parts=2, page_part_bytes=32, staging_pages=80)
    h.run("a", h.prompt(4))
    ended(h)
    stats = h.engine.stats()
    admitted, stored = stats.count("write_offer_queue"), stats.count("write_put_ended_stored")
    assert (8 * 16, 4 * 64 + 4 * 16) == (admitted.tokens, admitted.bytes) == (stored.tokens, stored.bytes)


def test_depth_and_age_of_the_backlog_are_figures(hand):
    """In pages, in writes, and in ticks since the oldest was admitted."""
    h = hand(open_limit=2000)
    h.outage()
    h.run("a", h.prompt(6))
    h.tick(7)
    stats = h.engine.stats()
    assert (6, 2, 7) == (stats.backlog_pages, stats.backlog_writes, stats.backlog_age)
