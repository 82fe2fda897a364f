"""The trace of two ranks, tick by tick: an early completion, staging refused once, an anchor that shrinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagehold import ComponentConfig, ComponentKind, InvariantBroken, RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.facts import unpack
from stagehold.lifecycle.operations import ENDED
from stagehold.testing.hand import Hand

SPAN = 8
ANCHOR = 3
OTHER = 6


class Pair:
    """Two ranks whose stores answer one after the other, driven by hand; `issues` is what each asked its store for."""

    def __init__(self, hand: Any, **settings: Any) -> None:
        sizes = {"staging_pages": SPAN, "pin_fraction": 0.0, **settings}
        slow = (Delays((1, 1), (2, 2), (1, 1)), Delays((1, 1), (3, 3), (1, 1)))
        self.ranks: list[Hand] = [hand(delays=delays, **sizes) for delays in slow]
        self.issues: list[list[tuple[Any, ...]]] = [[], []]
        for rank, log in zip(self.ranks, self.issues, strict=True):
            self._watch(rank, log)

    def _watch(self, rank: Hand, log: list[tuple[Any, ...]]) -> None:
        exists, get_into = rank.store.exists, rank.store.get_into

        def asked(ticket: int, keys: Any, tick: int) -> None:
            log.append((tick, "exists", ticket, tuple(keys)))
            exists(ticket, keys, tick)

        def fetched(ticket: int, keys: Any, buffers: Any, tick: int) -> None:
            log.append((tick, "get", ticket, tuple(keys)))
            get_into(ticket, keys, buffers, tick)

        rank.store.exists, rank.store.get_into = asked, fetched

    def each(self, act: Any) -> list[Any]:
        """Do the same on both ranks."""
        return [act(rank) for rank in self.ranks]

    def same(self, look: Any) -> Any:
        """What both ranks show, which must be equal."""
        one, other = self.each(look)
        assert one == other
        return one

    def tick(self) -> list[int]:
        """One tick; how many operations each rank knew to have ended before they agreed."""
        facts = self.each(lambda rank: rank.engine.poll())
        window = self.ranks[0].config.operation_window
        known = [int((one[:window] == ENDED).sum()) for one in facts]
        agreed = np.minimum(*facts)
        assert unpack(agreed).same
        self.each(lambda rank: rank.engine.proceed(agreed.copy()))
        self.same(occupancy)
        self.same(lambda rank: rank.engine.digest())
        assert self.issues[0] == self.issues[1]
        return known


def occupancy(rank: Hand) -> tuple[Any, ...]:
    """Holds and who has how much of what."""
    core = rank.core
    holds = [(h.number, h.state.name, h.data.start, h.data.last, tuple(h.data.staging)) for h in core.holds.values()]
    return holds, rank.books(), core.staging.free_count, core.device.free_count, core.tree.total, core.tree.pinned


def test_the_trace_of_two_ranks(hand: Any) -> None:
    """Published on both in one tick, refused once, lost, and fetched once more with the end that is known."""
    pair = Pair(hand, load_limit_fraction=1.0)
    prompt, other = pair.ranks[0].prompt(SPAN), pair.ranks[0].prompt(OTHER, 2)
    for rank in pair.ranks:
        rank.put(prompt)
        rank.put(other)
        rank.grow(prompt, ANCHOR)
    pair.tick()

    big = pair.same(lambda rank: rank.arrive("other", other))
    pair.tick()
    pair.tick()
    a = pair.same(lambda rank: rank.arrive("a", prompt))
    known = [pair.tick() for _ in range(2)]
    assert "PARKED" == pair.same(lambda rank: rank.hold_of(a).state.name)
    known.append(pair.tick())
    assert 1 == pair.same(lambda rank: taken(rank, "hold_io_commit_no_staging"))

    while pair.same(lambda rank: rank.hold_of(big).state.name) != "READY":
        known.append(pair.tick())
    # The lookup of `a` ends on both; the fetch ended on rank 0 in that tick, too, and counts once rank 1 has it.
    assert [[0, 0], [2, 1], [1, 1]] == known
    pair.same(lambda rank: rank.admit(big).store_hit_tokens)
    while pair.same(lambda rank: rank.hold_of(a).state.name) != "READY":
        pair.tick()

    pair.each(lambda rank: rank.shrink(prompt, 1))
    pair.same(lambda rank: str(rank.visit(a)))
    before = len(pair.issues[0])
    while pair.same(lambda rank: rank.engine.state_of(a)) is not RequestState.STAGED:
        pair.tick()
        pair.same(lambda rank: str(rank.visit(a)) if rank.engine.state_of(a) is not RequestState.STAGED else "")
    while pair.same(lambda rank: rank.hold_of(a).state.name) != "READY":
        pair.tick()
    refetches = pair.issues[0][before:]
    assert ["get"] == [kind for _, kind, _, _ in refetches]
    assert tuple(pair.ranks[0].names(prompt, 1)) == refetches[0][3]
    assert 16 * (SPAN - 1) == pair.same(lambda rank: rank.admit(a).store_hit_tokens)
    assert 1 == pair.same(lambda rank: taken(rank, "hold_io_commit_no_staging"))


def taken(rank: Hand, counter: str) -> int:
    return rank.engine.stats().count(counter).taken


def test_a_page_that_one_rank_has_lost_shortens_everybody_s_hit(hand: Any) -> None:
    """The lookup finds it gone on one rank; both fetch what both have, and nothing is raised."""
    pair = Pair(hand)
    prompt = pair.ranks[0].prompt(SPAN)
    pair.each(lambda rank: rank.put(prompt))
    pair.ranks[1].store.drop(pair.ranks[1].names(prompt)[5])
    a = pair.same(lambda rank: rank.arrive("a", prompt))
    for _ in range(8):
        pair.tick()
    assert 16 * 5 == pair.same(lambda rank: rank.admit(a).store_hit_tokens)


def test_a_page_that_goes_bad_on_one_rank_shortens_everybody_s_fetch(hand: Any) -> None:
    """Found by the lookup, damaged at the read: the verified head of the shortest rank is delivered."""
    pair = Pair(hand)
    prompt = pair.ranks[0].prompt(SPAN)
    pair.each(lambda rank: rank.put(prompt))
    pair.ranks[0].store.damage(pair.ranks[0].names(prompt)[4])
    a = pair.same(lambda rank: rank.arrive("a", prompt))
    for _ in range(8):
        pair.tick()
    assert 16 * 4 == pair.same(lambda rank: rank.admit(a).store_hit_tokens)
    assert 1 == pair.same(lambda rank: taken(rank, "hold_fetched_head"))


def test_staging_that_is_missing_on_one_rank_parks_on_both(hand: Any) -> None:
    """A leak on one rank: decisions count on what the poorest has, the books of each say that the ranks differ."""
    pair = Pair(hand, engine_options={"strict": False})
    prompt = pair.ranks[0].prompt(SPAN)
    pair.each(lambda rank: rank.put(prompt))
    leaked = pair.ranks[1].core.staging.alloc(1)
    a = pair.same(lambda rank: rank.arrive("a", prompt))
    for _ in range(4):
        agreed = np.minimum(*pair.each(lambda rank: rank.engine.poll()))
        for rank in pair.ranks:
            rank.engine.proceed(agreed.copy())
        assert pair.same(lambda rank: rank.engine.digest())
    assert "PARKED" == pair.same(lambda rank: rank.hold_of(a).state.name)
    assert SPAN == pair.ranks[0].core.staging.free_count
    assert all(rank.engine.stats().violations > 0 for rank in pair.ranks)

    pair.ranks[1].core.staging.free(leaked)
    for rank in pair.ranks:
        rank.core.news += 1
    pair.tick()
    assert "FETCHING" == pair.same(lambda rank: rank.hold_of(a).state.name)


def test_a_strict_rank_raises_where_another_has_less(hand: Any) -> None:
    """Replicas must be equal: a test run is told so in the second tick; by then the records had their chance to."""
    pair = Pair(hand)
    pair.tick()
    for twice in range(2):
        leaked = pair.ranks[1].core.staging.alloc(1)
        agreed = np.minimum(*pair.each(lambda rank: rank.engine.poll()))
        pair.ranks[1].core.staging.free(leaked)
        for rank in pair.ranks:
            if not twice:
                rank.engine.proceed(agreed)
                continue
            with pytest.raises(InvariantBroken, match="ranks: left on the poorest rank 7 pages of staging, 0 pages of"):
                rank.engine.proceed(agreed)
            rank.core.uneven = 0


def test_what_is_missing_of_another_component_on_one_rank_nobody_counts_on(hand: Any) -> None:
    """Windows have pools of their own, and a leak there is everybody's, too."""
    window = ComponentConfig(
        name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=48, device_pages=80, staging_pages=12
    )
    engines = {"components": (window,), "chunk_tokens": 64, "engine_options": {"strict": False}}
    pair = Pair(hand, **engines, staging_pages=40)
    (lost,) = pair.ranks[1].core.stocks.others[0].staging.alloc(1)
    (slot,) = pair.ranks[1].core.stocks.others[0].device.alloc(1)
    for _ in range(2):
        agreed = np.minimum(*pair.each(lambda rank: rank.engine.poll()))
        for rank in pair.ranks:
            rank.engine.proceed(agreed.copy())
    stocks = [rank.core.stocks.others[0] for rank in pair.ranks]
    assert [12 - 1] * 2 == [rank.core.staging_free_of(s) for rank, s in zip(pair.ranks, stocks, strict=True)]
    assert [80 - 1] * 2 == [rank.core.room_of(s) for rank, s in zip(pair.ranks, stocks, strict=True)]
    assert all(rank.engine.stats().violations > 0 for rank in pair.ranks)
    stocks[1].staging.free([lost])
    stocks[1].device.free([slot])
