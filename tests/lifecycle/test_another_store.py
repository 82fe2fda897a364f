"""A store is let go of and another one comes: nothing that was asked of the first says anything of the second."""

from __future__ import annotations

import pytest

from stagehold import AttachmentState, HostMode
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.operations import Kind
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.testing.hand import AT_ONCE, Hand

SLOW_ANSWERS = Delays((40, 40), (1, 1), (1, 1))
MODES = pytest.mark.parametrize("mode", list(HostMode))


def asking(hand, mode: HostMode = HostMode.CACHE, pages: int = 8, **settings):
    """An engine, and a request that waits for a store that answers in forty ticks and has its first `pages` pages."""
    h = hand(host_memory_mode=mode, staging_pages=80, **settings)
    h.put(h.prompt(pages))
    h.store._delays = SLOW_ANSWERS
    a = h.arrive("a", h.prompt(pages))
    h.tick(2)
    assert h.engine.state_of(a) is RequestState.LOOKUP
    return h, a


def exchange(h: Hand) -> None:
    """The store that is used from now on is an empty one."""
    h.engine.detach()
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED)
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment is AttachmentState.ATTACHED)


class Closing(SimulatedStore):
    """Says whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


class Endless:
    """Copies that are not reported as ended."""

    def sent(self, _number: int, _tick: int) -> None:
        pass

    def poll(self, _tick: int) -> list[int]:
        return []


def test_a_store_that_was_replaced_is_closed_though_the_engine_copies_all_the_time(hand):
    """Nothing of it is in flight, and that is all that it is kept for."""
    former = Closing(delays=AT_ONCE)
    h = hand(store=former, host_memory_mode=HostMode.CACHE, engine_options={"copies": Endless()})
    h.engine.detach()
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED)
    h.run("busy", h.prompt(2))
    h.tick(2)
    assert [Kind.COPY] == [one.kind for one in h.core.operations.live.values()]
    assert not former.closed
    h.store = SimulatedStore(delays=AT_ONCE)
    h.engine.attach(h.store)
    assert (True, []) == (former.closed, h.core.former)


def test_a_store_that_was_replaced_is_open_while_it_is_at_work(hand):
    """Its lookup outlived the detach; it is closed in the pass after that."""
    former = Closing(delays=AT_ONCE)
    h, _ = asking(hand, store=former, detach_limit=5)
    exchange(h)
    assert not former.closed
    h.until(lambda: not h.core.operations.live)
    h.tick()
    assert former.closed


@MODES
def test_nobody_waits_for_the_answer_of_a_store_that_went(hand, mode):
    """Whoever asked it computes, in that very pass."""
    h, a = asking(hand, mode)
    h.engine.detach()
    assert h.engine.state_of(a) is RequestState.CAPPED
    assert 0 == h.engine.stats().owned.get("query", 0)
    assert 0 == h.admit(a).hit_tokens


def test_host_memory_gives_what_it_has_when_the_store_goes_unanswered(hand):
    """The store was asked for what follows; without it, what is here is all there is."""
    h = hand(host_memory_mode=HostMode.CACHE, staging_pages=80)
    h.run("before", h.prompt(6))
    h.tick(6)
    h.shrink(h.prompt(6), 0)
    h.store._delays = SLOW_ANSWERS
    a = h.arrive("a", h.prompt(12))
    h.tick(2)
    assert h.engine.state_of(a) is RequestState.LOOKUP
    h.engine.detach()
    h.tick()
    assert (RequestState.STAGED, HoldState.READY) == (h.engine.state_of(a), h.hold_of(a).state)
    assert 6 * 16 == h.admit(a).store_hit_tokens


@MODES
def test_a_late_answer_teaches_nothing_of_the_store_that_is_used_now(hand, mode):
    """It comes when another store is attached, which has none of these pages."""
    h, a = asking(hand, mode, detach_limit=5)
    exchange(h)
    assert h.core.operations.live
    h.until(lambda: not h.core.operations.live)
    stats = h.engine.stats()
    assert (0, 0, 0) == (stats.beliefs, stats.wrong_beliefs, stats.fetched)
    h.serve(a)
    h.tick(6)
    assert [] == [name for name in h.names(h.prompt(8)) if not h.store.contains(name)]


def test_an_end_that_a_former_store_had_is_asked_for_anew(hand):
    """Covered when the store went, evicted when another one is there: that one is asked, and not read on trust."""
    h = hand()
    h.put(h.prompt(8))
    first, second = (h.arrive(rid, h.prompt(8)) for rid in ("first", "second"))
    h.until(lambda: h.engine.state_of(first) is RequestState.STAGED)
    h.until(lambda: h.hold_of(first).state is HoldState.READY)
    h.admit(first)
    h.engine.abort(first)
    assert h.engine.state_of(second) is RequestState.COVERED
    exchange(h)
    h.shrink(h.prompt(8), 0)
    read = h.engine.stats().fetched
    h.visit(second)
    h.tick(2)
    stats = h.engine.stats()
    assert (1, read, 0) == (stats.rows_taken["request.lookup.answer.MISS"], stats.fetched, stats.wrong_beliefs)
