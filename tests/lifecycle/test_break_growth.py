"""A server that never stops: what is over is forgotten, so that a year costs what a day does."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from stagehold.lifecycle import roster
from stagehold.lifecycle.clock import Clock
from stagehold.testing.hand import Hand

Build = Callable[..., Hand]


def test_attempts_of_old_ids_are_forgotten(hand: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ended ids go first; one that came again since is not old."""
    monkeypatch.setattr(roster, "PAST_IDS", 3)
    h = hand(store=None)
    for rid in ("a", "b", "c", "a", "d"):
        h.run(rid, h.prompt(1))
    assert [1, 2, 0] == [h.arrive(rid, h.prompt(1)).attempt for rid in ("c", "a", "b")]


def test_a_request_that_lives_long_keeps_its_attempt(hand: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others have come and gone."""
    monkeypatch.setattr(roster, "PAST_IDS", 2)
    h = hand(store=None)
    h.run("long", h.prompt(1))
    long = h.arrive("long", h.prompt(1), 4)
    h.admit(long)
    h.compute(long)
    for number in range(5):
        h.run(f"short-{number}", h.prompt(1))
    assert (1, 2) == (long.attempt, h.engine.retract(long).attempt)


def test_a_timer_goes_with_what_it_was_for(hand: Build) -> None:
    """Neither a request, nor a hold, nor a write that is over keeps its prompt until a limit of its falls due."""
    h = hand()
    h.put(h.prompt(8))
    before = sum(map(len, h.core.clock._wheel.values()))
    seen = []
    for rid in ("from the store", "from the tree"):
        handle = h.arrive(rid, h.prompt(8))
        seen.append(weakref.ref(h.machine(handle).data.chain.tokens.base))
        h.tick(4)
        h.serve(handle)
    h.run("to the store", h.prompt(8, 2))
    h.until(lambda: not h.core.writes and not h.core.holds)
    assert before == sum(map(len, h.core.clock._wheel.values()))
    assert [None, None] == [ref() for ref in seen]


def test_a_machine_has_one_timer_at_most() -> None:
    """Armed anew, it leaves nothing of the old arming; and disarmed, nothing at all."""

    class Thing:
        number, state = 7, np.int64(0)

    clock, thing = Clock(), Thing()
    for ticks in (5, 5, 9):
        clock.arm("m", thing, (thing.state, "late"), ticks)
        assert 1 == sum(map(len, clock._wheel.values()))
    clock.disarm(thing)
    assert {} == clock._wheel
