"""A fetch that nobody waits for any more reads no further, where the store can end it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagehold import RequestState
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lifecycle.operations import Operations
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand

PAGES = 20


class Counted(SimulatedStore):
    """Counts the pages that it has read, and remembers what it was told to cut, and when."""

    def __init__(self) -> None:
        super().__init__(delays=AT_ONCE)
        self.read: list[bytes] = []
        self.cuts: list[tuple[int, int]] = []

    def _read(self, name: bytes, out: memoryview) -> Any:
        self.read.append(name)
        return super()._read(name, out)

    def cut(self, ticket: int, tick: int) -> None:
        self.cuts.append((ticket, tick))
        super().cut(ticket, tick)


class Plain(Counted):
    """A store that cannot end anything early."""

    cut = None  # type: ignore[assignment]


class Refusing(Counted):
    """A store whose cut fails."""

    def cut(self, ticket: int, tick: int) -> None:
        super(Counted, self).cut(ticket + 1000, tick)
        raise OSError("no")


def trickling(hand: Any, ticks: int, *, store: Counted | None = None, claims: int = 1, **settings: Any) -> Any:
    """A fetch of 20 pages for some requests that has brought a page in each of `ticks` ticks."""
    h = hand(store=store or Counted(), **settings)
    h.put(h.prompt(PAGES))
    h.store.limit(1)
    handles = [h.arrive(f"r{number}", h.prompt(PAGES)) for number in range(claims)]
    h.until(lambda: h.machine(handles[0]).data.hold)
    h.store.read.clear()  # the page of the self-test
    h.tick(ticks)
    return h, handles, h.hold_of(handles[0])


def test_a_fetch_at_its_limit_reads_no_more_than_its_head(hand: Any) -> None:
    """The head is spliced with its bytes; the tail has its staging back with the next tick."""
    h, (a,), hold = trickling(hand, 6, fetch_limit=8, parts=2, page_part_bytes=32)
    h.until(lambda: hold.state is HoldState.READY)
    head, read = hold.data.last, len(h.store.read)
    assert PAGES > head >= 6
    assert [(1, h.now)] == [(len(h.store.cuts), tick) for _, tick in h.store.cuts]
    h.tick(30)
    assert read <= len(h.store.read) <= head + 1
    assert {"staging": head} == {name: units for name, units in h.books().items() if name in ("staging", "io")}
    assert {"cut": (PAGES - head) * 16} == h.engine.stats().losses
    assert [page + 1 for page in range(head)] == h.bytes_at("full", h.admit(a).slots[:head])


def test_a_wait_budget_that_ends_cuts_in_the_visit(hand: Any) -> None:
    """Best effort: what has come is used, and the rest is not read."""
    h, (a,), hold = trickling(hand, 6, prefetch_policy="best_effort")
    assert 6 * 16 == h.admit(a).store_hit_tokens
    assert 1 == len(h.store.cuts)
    h.tick(30)
    assert 6 == len(h.store.read)
    assert HoldState.SPLICED is hold.state


def test_the_only_claimant_that_leaves_ends_the_fetch(hand: Any) -> None:
    """Nothing is kept of it."""
    h, (a,), hold = trickling(hand, 3)
    h.engine.abort(a)
    assert (HoldState.DRAINING, 1) == (hold.state, len(h.store.cuts))
    h.tick()
    assert (HoldState.DROPPED, 3, {}) == (hold.state, len(h.store.read), h.books())
    assert h.core.happened.thrown["drained"].pages == 3


def test_a_claimant_that_leaves_others_behind_ends_nothing(hand: Any) -> None:
    """The other gets all of it."""
    h, (a, b), hold = trickling(hand, 3, claims=2)
    h.engine.abort(a)
    h.until(lambda: hold.state is HoldState.READY)
    assert ([], PAGES * 16) == (h.store.cuts, h.admit(b).store_hit_tokens)


def test_a_store_that_is_let_go_reads_no_further(hand: Any) -> None:
    """Detached: everything that flies ends at its next page."""
    h, _, hold = trickling(hand, 3)
    h.engine.detach()
    h.tick(2)
    assert (HoldState.DROPPED, 3) == (hold.state, len(h.store.read))


def test_writes_are_left_alone(hand: Any) -> None:
    """What is written is of use to others."""
    h = hand(store=Counted())
    h.store.limit(1)
    h.run("a", h.prompt(8))
    h.until(lambda: h.core.ledger.totals["io"])
    h.tick(2)
    h.engine.detach()
    h.tick(30)
    assert [] == h.store.cuts
    assert all(h.store.contains(name) for name in h.names(h.prompt(8)))


@pytest.mark.parametrize("store", [Plain, Refusing])
def test_a_store_that_cannot_cut_reads_on(hand: Any, store: type[Counted], caplog: pytest.LogCaptureFixture) -> None:
    """The buffer is freed by the end of the fetch; one that raises is put on record, and that is all."""
    h, (a,), hold = trickling(hand, 3, store=store())
    h.engine.abort(a)
    h.tick(PAGES - 4)
    assert (HoldState.DRAINING, PAGES) == (hold.state, h.books()["staging"])
    h.until(lambda: hold.state is HoldState.DROPPED)
    assert (PAGES, {}) == (len(h.store.read), h.books())
    assert (store is Refusing) == ("did not cut" in caplog.text)


def test_the_breaker_counts_no_fetch_that_was_cut(hand: Any) -> None:
    """Neither as a fault nor as a sign of health: only that the store was too slow counts, once a fetch."""
    h = hand(delays=SLOW_GETS, fetch_limit=10, retry_interval_ticks=0, suspect_window=1000)
    for family in (1, 2):
        h.put(h.prompt(8, family))
        a = h.arrive(f"r{family}", h.prompt(8, family))
        h.until(lambda a=a: h.machine(a).data.hold)
        h.until(lambda a=a: not h.machine(a).data.hold)
        h.engine.abort(a)
    window = [fault for _, fault in h.core.breaker.data.window]
    assert [False, True] * 2 == window  # of each a lookup, and a fetch that came too late
    assert 2 == len(h.books()) == len(h.core.operations.live)
    h.tick(150)
    assert {} == h.books()
    assert window == [fault for _, fault in h.core.breaker.data.window]


@pytest.mark.parametrize("fails", [False, True])
def test_a_store_that_cannot_cut_is_judged_by_what_it_says_in_the_end(hand: Any, *, fails: bool) -> None:
    """A fetch that nobody waits for counts as it always did: whole, or failed."""
    h = hand(store=Plain(), suspect_window=1000)
    h.store._delays = SLOW_GETS
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    h.store.fail_next(int(fails))
    h.tick()
    h.engine.abort(a)
    h.tick(150)
    assert [False, fails] == [fault for _, fault in h.core.breaker.data.window]


def test_a_fetch_that_had_no_place_yet_is_never_sent(hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What host memory has in front of it is kept; the rest is asked for by nobody."""
    h = hand(store=Counted(), host_memory_mode="cache", load_limit_fraction=0.9, fetch_limit=5)
    h.run("before", h.prompt(6))
    h.until(lambda: h.books().get("backlog", 0) + h.books().get("io", 0) == 0)
    h.shrink(h.prompt(6), 0)
    h.put(h.prompt(PAGES))
    a = h.arrive("a", h.prompt(PAGES))
    h.tick()
    monkeypatch.setattr(Operations, "place", lambda _: None)
    h.until(lambda: h.machine(a).data.hold)
    hold = h.hold_of(a)
    h.store.read.clear()
    h.until(lambda: hold.state is HoldState.READY)
    assert (6, [], {}) == (hold.data.last, h.store.cuts, h.core.operations.live)
    monkeypatch.undo()
    h.tick(5)
    assert (6 * 16, []) == (h.admit(a).store_hit_tokens, h.store.read)


def test_closing_while_a_fetch_is_cut_gives_everything_back(hand: Any) -> None:
    """The store does not answer any more; the fixture sees that nobody owns anything."""
    h, (a, b), _ = trickling(hand, 3, claims=2)
    h.store.stall()
    h.engine.abort(a)
    h.engine.abort(b)
    h.engine.close()
    assert 1 == len(h.store.cuts)


def test_a_snapshot_between_a_cut_and_its_end_goes_on_alike(hand: Any) -> None:
    """The store's copy has been told, too."""
    h, (a,), _ = trickling(hand, 3)
    h.engine.abort(a)
    snapshot = h.engine.snapshot()
    h.tick(3)
    digest = h.engine.digest()
    h.engine.restore(snapshot)
    h.tick(3)
    assert digest == h.engine.digest()


def test_two_ranks_cut_in_one_tick_and_keep_the_shorter_head(hand: Any) -> None:
    """One has read seven pages and the other three: both keep three, and end when the slower one has."""
    ranks: list[Hand] = [hand(store=Counted(), fetch_limit=9) for _ in range(2)]
    handles = []
    for rank, pages in zip(ranks, (1, 3), strict=True):
        rank.put(rank.prompt(PAGES))
        rank.store.limit(pages)
        rank.store.read.clear()
        handles.append(rank.arrive("a", rank.prompt(PAGES)))

    def tick() -> None:
        agreed = np.minimum(*[rank.engine.poll() for rank in ranks])
        for rank in ranks:
            rank.engine.proceed(agreed.copy())
        assert ranks[0].engine.digest() == ranks[1].engine.digest()

    for _ in range(6):
        tick()
    assert [0, 0] == [len(rank.store.cuts) for rank in ranks]
    holds = [rank.hold_of(handle) for rank, handle in zip(ranks, handles, strict=True)]
    while holds[0].state is HoldState.FETCHING:
        tick()
        cut_at = ranks[0].now
    assert [[cut_at]] * 2 == [[tick for _, tick in rank.store.cuts] for rank in ranks]
    assert ranks[0].store.cuts == ranks[1].store.cuts
    for _ in range(10):
        tick()
    (last,) = {hold.data.last for hold in holds}
    assert last <= len(ranks[0].store.read) <= last + 1
    assert len(ranks[1].store.read) <= PAGES
    assert [last, last] == [rank.books()["staging"] for rank in ranks]
    assert [RequestState.STAGED] * 2 == [r.engine.state_of(a) for r, a in zip(ranks, handles, strict=True)]
