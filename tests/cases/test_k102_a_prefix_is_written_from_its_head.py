"""K102: with write-back a file store was written all day and never read: the heads of its prefixes were missing.

A lookup stops at the first page that is not there, so tails without heads are worth nothing; and why nothing was read
stood in a debug log. Here a tail is offered together with all that leads to it, begins after it, and every launch that
is declined and every write that is refused or given up is counted under its reason, whatever the level of logging.
"""

from __future__ import annotations

import pytest

from stagehold import HostMode, WritePolicy
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.lifecycle.offers import Offers
from stagehold.specs.request import RequestState
from stagehold.testing.hand import Hand

FAMILIES = 12
OPTIONS = {"host_memory_mode": HostMode.CACHE, "write_policy": WritePolicy.WRITE_BACK, "staging_pages": 80}


def conversations(h: Hand) -> None:
    """Heads that come again and again, each time with another tail, through a pool of five prompts."""
    for number in range(4 * FAMILIES):
        h.run(f"r{number}", h.prompt(12, 100 + number, shared=4))
        h.tick(2)
        h.until(lambda: not h.core.writes)


def in_store(h: Hand) -> list[list[bool]]:
    """Which pages of each prompt are stored."""
    prompts = [h.prompt(12, 100 + number, shared=4) for number in range(4 * FAMILIES)]
    return [[h.store.contains(name) for name in h.names(tokens)] for tokens in prompts]


def test_no_page_is_stored_without_its_head(hand):
    """Of every prompt the store has a prefix, and of those that had to leave all of it."""
    h = hand(**OPTIONS)
    conversations(h)
    found = in_store(h)
    assert all(there == sorted(there, reverse=True) for there in found)
    assert all(map(all, found[: 3 * FAMILIES]))


def test_a_policy_that_writes_leaves_alone_would_be_seen(hand, monkeypatch):
    """Planted: only the leaf that is about to go is offered; its head is refused for want of a parent, by name."""
    monkeypatch.setattr(Offers, "_uncovered_from", lambda _self, _chain, first: max(0, first - 8))
    h = hand(**OPTIONS)
    conversations(h)
    assert not all(map(all, in_store(h)[: 3 * FAMILIES]))
    assert h.engine.stats().count("write_offer_uncovered").tokens > 0


def test_a_second_server_reads_what_the_first_wrote_back(hand, tmp_path):
    """Page files, a new process's engine, and every prompt that had left the first one's device is a whole hit."""
    first = hand(store=WorkerStore(FileStore(tmp_path)), **OPTIONS)
    conversations(first)
    first.engine.close()
    second = hand(store=WorkerStore(FileStore(tmp_path)), **OPTIONS)
    for number in range(10):
        a = second.arrive(f"r{number}", second.prompt(12, 100 + number, shared=4))
        second.until_state(a, RequestState.STAGED, RequestState.RETRY)
        second.until(lambda a=a: getattr(second.visit(a), "admitted", False))
        assert 192 == second.machine(a).data.store_hit_tokens
        second.engine.abort(a)
        second.until(lambda: not second.core.holds)
        second.shrink(second.prompt(12, 100 + number, shared=4), 0)


@pytest.mark.parametrize("level", ["off", "on"])
def test_why_nothing_is_read_or_written_is_counted(hand, caplog, level):
    """Declined launches and refused writes, with their tokens; no logger has to be turned up."""
    caplog.set_level("CRITICAL" if level == "off" else "DEBUG")
    h = hand(query_limit=1, write_backlog_tokens=4 * 16)
    for family in range(1, 4):
        h.arrive(f"q{family}", h.prompt(8, family))
    h.tick()
    h.run("w", h.prompt(12, 9))
    stats = h.engine.stats()
    assert {"query_rate": 2} == stats.declines
    assert (64, 64) == (stats.count("write_offer_full").tokens, stats.count("write_offer_uncovered").tokens)
