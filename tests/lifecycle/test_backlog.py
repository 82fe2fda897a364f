"""The order of queued writes, and what a tick looks at: by counted work, not by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from stagehold import ComponentConfig, ComponentKind
from stagehold.cache.keys import Chain
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.backlog import PASSES_BEFORE_LARGE_FIRST, STARTS_A_TICK, SWEPT_A_TICK, Backlog
from stagehold.lifecycle.data import WriteData
from stagehold.machines import Machine, SpanKey
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand

FULL, SWA = "full", "swa"
SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(500, 500))


class Queue:
    """A backlog and the writes that it is given; those of the `blocked` components never begin."""

    def __init__(self, h: Hand, blocked: Iterable[str] = ()) -> None:
        self.h = h
        self.backlog = Backlog()
        self.blocked = set(blocked)
        self.begun: list[Machine] = []

    def add(self, chain: Chain, first: int, last: int, component: str = FULL, *, small: bool = False) -> Machine:
        """A write of pages [first, last)."""
        stock = self.h.core.stocks.by_name.get(component, self.h.core.stocks.spine)
        data = WriteData(chain, b"", first, last, tuple(stock.keys(chain, first, last)), component, small=small)
        if component == FULL and first:
            data.parent = chain.page_key(first - 1)
        w = self.h.core.steps.write.birth(data, SpanKey(b"", data.keys[-1], first, last))
        w.state = WriteState.QUEUED
        self.backlog.enter(w, now=0)
        return w

    def tick(self, tick: int = 1) -> int:
        """One turn; returns how many writes were looked at."""
        before = self.backlog.looked
        self.backlog.resume(tick)
        for w in self.backlog.turn():
            if w.data.component not in self.blocked and not w.data.unwanted:
                self.begun.append(w)
                self.backlog.leave(w)
                w.state = WriteState.COPYING
        return self.backlog.looked - before


@pytest.fixture
def queue(hand: Callable[..., Hand]) -> Callable[..., Queue]:
    return lambda **options: Queue(hand(), **options)


def lone(h: Hand, number: int) -> Chain:
    """A chain of one page that no other number has."""
    return h.chain(np.full(17, number, dtype=np.uint32))


@pytest.mark.parametrize("queued", [100, 10_000])
def test_a_blocked_component_stalls_nobody_and_costs_one_look(queue, queued):
    """Thousands of writes of one component wait; those of another begin, all that one turn may look at."""
    q = queue(blocked=[FULL])
    chains = [lone(q.h, number) for number in range(queued)]
    for chain in chains:
        q.add(chain, 0, 1)
    others = [q.add(chain, 0, 1, SWA) for chain in chains]
    turns = -(-queued // STARTS_A_TICK)
    looks = [q.tick() for _ in range(turns)]
    assert others == q.begun
    assert len(others) + turns == sum(looks)
    assert 1 == q.tick()


@pytest.mark.parametrize("queued", [100, 10_000])
def test_what_an_engine_looks_at_does_not_grow_with_what_waits(hand, queued):
    """The breaker is open: each tick looks at one write, and at a few that may have lost their pages."""
    h = hand(device_pages=queued + 64, write_wait_limit=10**6, trip_results=2)
    h.outage()
    offers = h.engine._parts.phases.offers
    for number in range(queued):
        h.core.insert(chain := lone(h, number), 0, h.core.allocate_device(1))
        offers.offer_span(chain, b"", 0, 1)
    assert queued == h.engine.stats().backlog_writes
    h.tick()
    before = h.core.backlog.looked
    for _ in range(10):
        h.core.news += 1
        h.tick()
    assert 10 * (1 + SWEPT_A_TICK) == h.core.backlog.looked - before


def test_parents_begin_before_children_whatever_their_sizes(queue):
    """A small child waits behind its large parent, and its own child behind it."""
    q = queue()
    chain = q.h.chain(q.h.prompt(12))
    parent, child = q.add(chain, 0, 4), q.add(chain, 4, 5, small=True)
    grandchild = q.add(chain, 5, 6, small=True)
    q.tick()
    assert [parent, child, grandchild] == q.begun


def test_a_branch_from_the_middle_of_a_queued_write_waits_for_it(queue):
    """What it goes on from is not its last page."""
    q = queue()
    trunk = q.add(q.h.chain(q.h.prompt(4)), 0, 4)
    branch = q.add(q.h.chain(q.h.prompt(4, 2, shared=2)), 2, 4, small=True)
    trunk.data.unwanted = True  # for this turn it may not begin
    q.tick()
    assert [] == q.begun
    trunk.data.unwanted = False
    q.tick()
    assert [trunk, branch] == q.begun


def test_a_write_that_left_lets_its_children_come_forward(queue):
    """They find out by themselves that their parent is gone."""
    q = queue()
    chain = q.h.chain(q.h.prompt(8))
    parent, child = q.add(chain, 0, 4), q.add(chain, 4, 8)
    parent.data.unwanted = True
    q.tick()
    q.backlog.leave(parent)
    q.tick()
    assert [child] == q.begun


def test_small_writes_go_first(queue):
    """Among those that wait for nobody."""
    q = queue()
    large, small = q.add(lone(q.h, 1), 0, 1), q.add(lone(q.h, 2), 0, 1, small=True)
    q.tick()
    assert [small, large] == q.begun


def test_a_large_write_is_passed_so_often_and_then_waited_for(queue):
    """Small ones that come all the time cannot keep it out for ever."""
    q = queue()
    large = q.add(lone(q.h, 0), 0, 1)
    large.data.unwanted = True
    for number in range(1, PASSES_BEFORE_LARGE_FIRST + 5):
        q.add(lone(q.h, number), 0, 1, small=True)
        q.tick()
    assert PASSES_BEFORE_LARGE_FIRST == len(q.begun)
    large.data.unwanted = False
    q.tick()
    assert large is q.begun[PASSES_BEFORE_LARGE_FIRST]
    assert 0 == len(q.backlog)


def test_the_sweep_comes_round_to_everybody(queue):
    """A few at a time, whichever have not been asked after for longest; after the last the first again."""
    q = queue(blocked=[FULL])
    writes = [q.add(lone(q.h, number), 0, 1) for number in range(2 * SWEPT_A_TICK)]
    swept = [list(q.backlog.rota()) for _ in range(3)]
    assert [writes[:SWEPT_A_TICK], writes[SWEPT_A_TICK:], writes[:SWEPT_A_TICK]] == swept


def test_a_pause_is_kept_to_the_tick(queue):
    """Nobody looks at it before."""
    q = queue()
    w = q.add(lone(q.h, 0), 0, 1)
    q.backlog.leave(w)
    w.data.not_before = 20
    q.backlog.enter(w, now=0)
    assert (0, []) == (q.tick(19), q.begun)
    assert (1, [w]) == (q.tick(20), q.begun)


def test_a_write_that_is_dropped_in_its_pause_does_not_come_back(queue):
    """Its tick passes and nothing happens."""
    q = queue()
    w = q.add(lone(q.h, 0), 0, 1)
    q.backlog.leave(w)
    w.data.not_before = 20
    q.backlog.enter(w, now=0)
    q.backlog.leave(w)
    assert (0, 0) == (q.tick(20), len(q.backlog))


def test_a_backlog_that_is_empty_remembers_nobody(queue):
    """A busy server's writes come and go faster than any of them is asked after."""
    q = queue()
    for number in range(500):
        q.add(lone(q.h, number), 0, 1)
        q.tick()
    kept = [getattr(q.backlog, name) for name in q.backlog.__slots__ if name not in ("_lanes", "looked", "unfinished")]
    assert [0] * len(kept) == [len(one) for one in kept]


def test_pages_that_went_are_swept_from_behind_a_blocked_head(hand):
    """The backlog gives their room back although the queue stands."""
    h = hand(open_limit=2000)
    h.outage()
    for family in range(1, 4):
        h.run(f"r{family}", h.prompt(4, family))
    h.shrink(h.prompt(4, 3), 0)
    before = h.engine.stats()
    for _ in range(4):
        h.core.news += 1
        h.tick()
    assert before.backlog_pages - 4 == h.engine.stats().backlog_pages


def test_an_engine_with_a_window_writes_full_while_the_window_waits(hand):
    """Two components, one store: staging of the window is taken, the other goes on."""
    window = ComponentConfig(
        name=SWA, kind=ComponentKind.SLIDING_WINDOW, window_tokens=32, device_pages=64, staging_pages=6
    )
    h = hand(components=(window,), chunk_tokens=160, delays=SLOW_PUTS, put_limit=1000)
    for family in range(1, 5):
        h.run(f"r{family}", h.prompt(2, family))
        h.tick(2)
    waiting = [w.data.component for w in h.core.writes.values() if w.state is WriteState.QUEUED]
    assert waiting
    assert {SWA} == set(waiting)
