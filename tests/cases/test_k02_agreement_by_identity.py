"""K02: ranks agreed on how many completions to take, not on which ones.

Two ranks each see one of two transfers end, but not the same one. The minimum of the counts is one, so each takes the
first of its own list; from then on their bookkeeping differs, and some ticks later one waits for a collective that
the other never enters. Here every operation has its own place in the exchange: what not every rank has seen is
nobody's event yet.
"""

from __future__ import annotations

import random

import numpy as np

from stagehold import Diverged, RequestState
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.testing.hand import AT_ONCE, Hand
from stagehold.testing.ranks import in_turns


class Picked(SimulatedStore):
    """A store that reports the operations of the tickets in `slow` later than the others."""

    def __init__(self, slow: set[int]) -> None:
        super().__init__(delays=AT_ONCE)
        self.slow = slow

    def poll(self, tick: int):
        held = {t: (self._operations.pop(t), self._due.pop(t)) for t in self.slow & set(self._operations)}
        reports = super().poll(tick)
        for ticket, (operation, due) in held.items():
            self._operations[ticket], self._due[ticket] = operation, due
        return reports


def together(ranks: list[Hand]) -> None:
    """One tick of all ranks: the facts are agreed by their minimum."""
    agreed = np.minimum.reduce([rank.engine.poll() for rank in ranks])
    for rank in ranks:
        rank.engine.proceed(agreed.copy())


def two_ranks(hand) -> list[Hand]:
    ranks = [hand(store=Picked(set())) for _ in range(2)]
    assert ranks[0].engine.digest() == ranks[1].engine.digest()
    return ranks


def test_equal_counts_of_different_completions_are_nobody_s_event(hand):
    """One rank has seen the first answer only, the other the second only: both wait, and both go on together."""
    ranks = two_ranks(hand)
    handles = [[rank.arrive(name, rank.prompt(8, family)) for family, name in enumerate("ab", 1)] for rank in ranks]
    together(ranks)
    first, second = ranks[0].store.in_flight()
    ranks[0].store.slow, ranks[1].store.slow = {second}, {first}
    together(ranks)
    counts = [sum(1 for ticket in (first, second) if ticket not in rank.store.in_flight()) for rank in ranks]
    assert [1, 1] == counts  # what an agreement by count would act on: one each, and not the same one
    for rank, mine in zip(ranks, handles, strict=True):
        assert [RequestState.LOOKUP] * 2 == [rank.engine.state_of(handle) for handle in mine]
    for rank in ranks:
        rank.store.slow = set()
    together(ranks)
    assert ranks[0].engine.digest() == ranks[1].engine.digest()
    assert RequestState.RETRY is ranks[0].engine.state_of(handles[0][0])


def test_ranks_whose_stores_answer_in_any_order_stay_equal(hand):
    """Three hundred passes; the digests are compared after each."""
    ranks = two_ranks(hand)
    dice, own = random.Random(2), [random.Random(7), random.Random(8)]
    waiting: list[str] = []
    for number in range(300):
        if number % 3 == 0:
            family = dice.randint(1, 6)
            for rank in ranks:
                rank.put(rank.prompt(10, family), 0, 7)
                rank.arrive(f"r{number}", rank.prompt(10, family))
            waiting.append(f"r{number}")
        for rank, its in zip(ranks, own, strict=True):
            flying = rank.store.in_flight()
            rank.store.slow = {ticket for ticket in flying if its.random() < 0.6}
        together(ranks)
        assert ranks[0].engine.digest() == ranks[1].engine.digest()
        if waiting and dice.random() < 0.4:
            rid = waiting.pop(0)
            for rank in ranks:
                handle = rank.engine._roster.alive[rid].data.handle
                if getattr(rank.visit(handle), "admitted", False):
                    rank.compute(handle)
                    rank.engine.finish(handle)
                else:
                    rank.engine.abort(handle)
    assert ranks[0].engine.stats() == ranks[1].engine.stats()
    assert ranks[0].engine.stats().spliced > 0


def test_ranks_that_fly_different_operations_stop_with_both_lists():
    """One rank has sent off a lookup that the other has not, in the same place: no fact of either is acted on."""

    def program(member):
        with Hand(engine_options={"group": member}) as rank:
            for family in (1, 2):
                rank.arrive(f"r{family}", rank.prompt(8, family))
            free = rank.core.operations._free
            free[0], free[1] = (free[1], free[0]) if member.rank else (free[0], free[1])
            rank.tick(2)

    _, outcomes = in_turns(2, 1, program)
    for outcome in outcomes:
        assert isinstance(outcome.error, Diverged)
        said = str(outcome.error)
        first, second = said.partition("; of rank 1: ")[::2]
        assert "other operations are in flight; operations of rank 0: " in first
        assert " query of " in first
        assert " query of " in second
