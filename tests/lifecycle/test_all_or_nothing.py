"""A step whose effect raises leaves state, counters, books, pools and tree as they were, on a live engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stagehold import InvariantBroken, RequestState
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lifecycle.claims import Look
from stagehold.lifecycle.core import Core
from stagehold.specs.hold import HoldState
from stagehold.specs.store import StoreState
from stagehold.specs.write import WriteState
from stagehold.testing.hand import AT_ONCE, Hand

Build = Callable[..., Hand]


def books(h: Hand) -> dict[str, Any]:
    """Everything that a step may change, as values."""
    core = h.core
    machines = [*core.requests.values(), *core.holds.values(), *core.writes.values(), core.breaker, core.link]
    return {
        "states": {m.number: (m.state, repr(m.data)) for m in machines},
        "counters": {m.number: [getattr(m, name) for name in type(m).__slots__] for m in machines},
        "entries": dict(core.ledger.entries),
        "tokens": (core.ledger.queried, core.ledger.spliced, core.ledger.open, dict(core.ledger.losses)),
        "pools": (core.device.free_count, core.staging.free_count, core.reserved, core.committed),
        "tree": (core.tree.total, core.tree.pinned, core.tree.evictable),
        "counts": (core.hold_pages, core.write_pages, core.fetched_tokens, core.local_tokens),
        "operations": sorted(core.operations.live),
        "records": len(core.journal.records),
    }


@contextmanager
def short(monkeypatch: pytest.MonkeyPatch, act: str) -> Iterator[None]:
    """What this act of the engine's core reserves cannot be had."""

    def nothing(_core: Core, *what: object) -> list[int]:
        raise InvariantBroken(f"nothing left of {what[-1]}")

    with monkeypatch.context() as patch:
        patch.setattr(Core, act, nothing)
        yield


def test_a_fetch_that_gets_no_staging_has_not_begun(hand: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold is parked, owns nothing and keeps its whole span, though the tree has grown over its head."""
    h = hand()
    h.put(tokens := h.prompt(8))
    handle = h.arrive("a", tokens)
    h.until_state(handle, RequestState.LOOKUP)
    with short(monkeypatch, "allocate_staging"), pytest.raises(InvariantBroken, match="nothing left of 8"):
        h.tick()
    h.grow(tokens, 2)
    hold, before = h.hold_of(handle), books(h)
    with short(monkeypatch, "allocate_staging"), pytest.raises(InvariantBroken, match="nothing left of 6"):
        h.core.steps.hold.io_commit(hold, Look(2, 2))

    assert before == books(h)
    h.core.steps.hold.io_commit(hold, Look(2, 2))
    assert (HoldState.FETCHING, 6) == (hold.state, len(hold.data.staging))


def test_a_splice_that_gets_no_pages_has_not_happened(hand: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The visit's lock is held, the hold is planned, the claim is open."""
    h = hand()
    h.put(tokens := h.prompt(8))
    handle = h.arrive("a", tokens)
    h.until(lambda: h.engine.state_of(handle) is RequestState.STAGED and h.hold_of(handle).state is HoldState.READY)
    plan = h.engine.select(handle, 1_000)
    before = books(h)
    with short(monkeypatch, "allocate_device"), pytest.raises(InvariantBroken, match="nothing left of 8"):
        h.engine.commit(plan)

    assert before == books(h)
    assert RequestState.ANCHOR_LOCKED is h.engine.state_of(handle)
    h.engine.abort(handle)


def test_a_copy_that_gets_no_staging_has_not_begun(hand: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is queued with its whole backlog, although its tail was evicted."""
    h = hand()
    h.run("a", tokens := h.prompt(4))
    h.shrink(tokens, 3)
    (write,) = h.core.writes.values()
    before = books(h)
    with short(monkeypatch, "allocate_staging"), pytest.raises(InvariantBroken, match="nothing left of 3"):
        h.core.steps.write.start(write)

    assert before == books(h)
    h.core.steps.write.start(write)
    assert (WriteState.COPYING, 3) == (write.state, len(write.data.staging))


class Throwing(SimulatedStore):
    """A store whose calls raise instead of failing, while told to."""

    throwing = False

    def exists(self, *given: Any) -> None:
        self._throw()
        super().exists(*given)

    def get_into(self, *given: Any) -> None:
        self._throw()
        super().get_into(*given)

    def put(self, *given: Any) -> None:
        self._throw()
        super().put(*given)

    def _throw(self) -> None:
        if self.throwing:
            raise OSError("no route to host")


def throwing(hand: Build, **settings: Any) -> Hand:
    """An engine on a store that will raise."""
    h = hand(store=Throwing(delays=AT_ONCE), **settings)
    h.store.throwing = True
    return h


def test_a_lookup_that_the_store_throws_out_is_a_miss_and_a_fault(hand: Build) -> None:
    """Nobody hears of the exception but the breaker."""
    h = throwing(hand)
    handle = h.arrive("a", h.prompt(4))
    h.until_state(handle, RequestState.RETRY)

    assert StoreState.SUSPECT is h.core.breaker.state
    assert {} == h.books()


def test_a_fetch_that_the_store_throws_out_fails(hand: Build) -> None:
    """Its staging and its pin go back with the end of the IO."""
    h = hand(store=Throwing(delays=AT_ONCE))
    h.put(tokens := h.prompt(4))
    handle = h.arrive("a", tokens)
    h.until_state(handle, RequestState.LOOKUP)
    h.store.throwing = True
    h.until_state(handle, RequestState.RETRY)

    assert 1 == h.taken("hold.fetching.fetched.NOTHING")
    assert {} == h.books()


def test_a_put_that_the_store_throws_out_is_tried_again(hand: Build) -> None:
    """And is stored once the store has come to its senses."""
    h = throwing(hand, suspect_window=2)
    h.run("a", h.prompt(4))
    h.until(lambda: h.taken("write.storing.put_ended.FAILED"))
    h.store.throwing = False
    h.until(lambda: h.taken("write.storing.put_ended.STORED"))

    assert {} == h.books()
