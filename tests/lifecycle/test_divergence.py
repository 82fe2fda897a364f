"""Ranks that recorded different ticks: the engine stops before it acts on anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stagehold import AuditLog, Diverged, Engine, Misuse
from stagehold.lifecycle.facts import differing
from stagehold.lifecycle.ranks.solo import Facts, Solo
from stagehold.machines.audit import verify
from stagehold.testing.hand import Hand


class Drifting(Solo):
    """A group whose other rank says something else in exchanges `since` to `until`, and cannot be asked what."""

    size = 2

    def __init__(self, since: int, until: int = 1 << 30) -> None:
        self._since = since
        self._until = until
        self.exchanges = 0

    def exchange(self, facts: Facts) -> Facts:
        """The other rank's digest is not ours."""
        self.exchanges += 1
        return differing(facts) if self._since <= self.exchanges <= self._until else facts.copy()


def test_a_divergence_stops_the_engine_before_anything_is_applied(hand: Callable[..., Hand]) -> None:
    """A lookup has been answered in that very tick, and its request is still where it was."""
    group = Drifting(since=20)
    one = hand(engine_options={"group": group})
    while group.exchanges < 18:
        one.tick()
    handle = one.arrive("r", one.prompt(4))
    one.tick()
    with pytest.raises(Diverged, match=r"^tick \d+: the ranks' blocks of the tick before are not the same$"):
        one.tick()

    assert 20 == group.exchanges
    assert "LOOKUP" == one.engine.state_of(handle).name
    assert 1 == one.taken("tick.agreeing.agreed.DIVERGED")


def test_an_engine_that_has_stopped_only_closes(hand: Callable[..., Hand]) -> None:
    """Every other call says so."""
    one = hand(engine_options={"group": Drifting(since=2)}, attach=False)
    one.tick()
    with pytest.raises(Diverged):
        one.tick()
    with pytest.raises(Misuse, match="the ranks diverged, and this engine has stopped; close it"):
        one.tick()
    with pytest.raises(Misuse, match="arrive: the ranks diverged"):
        one.arrive("r", one.prompt(4))


def test_the_log_of_a_divergence_is_sound(tmp_path: Path, hand: Callable[..., Hand]) -> None:
    """Its last records say that the tick stopped and what closing ended."""
    with AuditLog(tmp_path / "a.jsonl") as log:
        one = hand(engine_options={"group": Drifting(since=3), "sink": log.block}, attach=False)
        one.tick(2)
        with pytest.raises(Diverged):
            one.tick()
        engine: Engine = one.engine
        engine.close()

    assert verify(tmp_path / "a.jsonl").sound


def test_a_divergence_in_quarantine_costs_the_store_and_nothing_else(hand: Callable[..., Hand]) -> None:
    """The link is let go of in that very tick, holds are dropped, and requests run with what the device holds."""
    group = Drifting(since=20, until=20)
    one = hand(engine_options={"group": group}, divergence_policy="quarantine")
    prompt = one.prompt(4)
    one.put(prompt)
    while group.exchanges < 17:
        one.tick()
    handle = one.arrive("r", prompt)
    one.tick(2)
    assert "STAGED" == one.engine.state_of(handle).name
    one.tick()
    assert 20 == group.exchanges
    assert "CAPPED" == one.engine.state_of(handle).name
    assert one.engine.attachment.name in ("DRAINING", "DETACHED")

    one.tick(3)
    assert 0 == one.serve(handle).hit_tokens
    assert "DETACHED" == one.engine.attachment.name
    assert one.taken("tick.agreeing.agreed.QUARANTINE") > 0


def test_ranks_in_quarantine_whose_device_tiers_part_stop_all_the_same(hand: Callable[..., Hand]) -> None:
    """There is nothing left to let go of; and no store is attached again before they are started anew."""
    one = hand(engine_options={"group": Drifting(since=20, until=20)}, divergence_policy="quarantine")
    one.tick(25)
    with pytest.raises(Misuse, match="attach: the ranks recorded different things, and go on without a store"):
        one.engine.attach(one.store)

    other = hand(engine_options={"group": Drifting(since=20)}, divergence_policy="quarantine")
    with pytest.raises(Diverged):
        other.tick(30)
    assert 1 == other.taken("tick.agreeing.agreed.QUARANTINE")
    assert 1 == other.taken("tick.agreeing.agreed.DIVERGED")


def test_ranks_in_quarantine_use_host_memory_no_more(hand: Callable[..., Hand]) -> None:
    """Without a store, too: each rank's copies end in a tick of its own from there on, so nobody may wait for them."""
    group = Drifting(since=20, until=20)
    one = hand(store=None, host_memory_mode="cache", divergence_policy="quarantine", engine_options={"group": group})
    one.run("first", one.prompt(4))
    one.tick(14)
    one.shrink(one.prompt(4), 0)
    staged = one.arrive("staged", one.prompt(4))
    one.tick(3)
    assert "STAGED" == one.engine.state_of(staged).name
    one.run("copying", one.prompt(4, 2))
    one.tick()
    assert ["COPYING"] == [w.state.name for w in one.core.writes.values()]
    while group.exchanges < 20:
        one.tick()
    assert "CAPPED" == one.engine.state_of(staged).name
    later = one.arrive("later", one.prompt(4))
    one.tick(3)
    assert ("CAPPED", {}) == (one.engine.state_of(later).name, one.books())
    one.run("third", one.prompt(4, 3))
    assert 1 == one.taken("write.offered.offer.OFF")
