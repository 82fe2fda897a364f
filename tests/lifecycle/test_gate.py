"""Fetch or compute: what waiting costs, when the store is left alone, and how it comes back."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from stagehold import Admission, Diverged, Handle, Skip
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.gate import MEMORY_TOKENS, Gate, GateState, Pace
from stagehold.specs.outcomes import Eviction, FetchGate
from stagehold.testing.hand import Hand, small_config
from stagehold.testing.ranks import in_turns
from stagehold.testing.shapes import drawn
from stagehold.testing.steps import Walk
from stagehold.testing.world import World

WORTH = 100
"""Tokens that a tick is worth here."""
PATIENCE = 4
SPAN = 8 * 16
SLOW = Delays(exists=(1, 1), get=(40, 40), put=(1, 1))
GATED: dict[str, Any] = {
    "fetch_gate": FetchGate.AUTO, "prefill_tokens_per_tick": WORTH, "wait_base_ticks": PATIENCE, "open_limit": 16,
    "open_limit_cap": 64, "probe_trips": 2, "suspect_window": 8, "trip_results": 4, "wait_cap_ticks": 200,
    "wait_per_page_ticks": 20.0, "host_memory_mode": "buffer_only", "page_cache_fraction": 0.0,
}  # fmt: skip


def gate(**settings: Any) -> Gate:
    return Gate(small_config(**{**GATED, **settings}))


def passes(one: Gate, count: int, *, awaited: int = 0, computed: int = 0) -> None:
    """So many passes in which one hold is waited for."""
    for _ in range(count):
        one.holds_back(1, awaited)
        one.computes(computed)
        one.turn(1, trial_waits=True)


def test_a_pass_costs_what_it_did_not_compute() -> None:
    """Nobody held back, or a pass that is full: nothing is lost."""
    one = gate()
    one.computes(0)
    one.turn(1, trial_waits=False)
    passes(one, 5, awaited=10_000, computed=WORTH)
    assert 0 == one.lost
    passes(one, 2, awaited=10_000, computed=WORTH - 30)
    assert 60 == one.lost


def test_what_is_spliced_pays_and_is_not_saved_up() -> None:
    """A good hour buys no bad minute."""
    one = gate()
    passes(one, 3, awaited=10_000)
    one.brings(Handle("a", 1), 200)
    assert 100 == one.lost
    one.brings(Handle("a", 1), 9_999)
    assert 0 == one.lost


def test_it_waits_as_long_as_computing_it_all_would_take() -> None:
    """And the patience of a lookup longer: 10 ticks for 1,000 tokens, and 4."""
    one = gate()
    passes(one, 10 + PATIENCE, awaited=10 * WORTH)
    assert GateState.OPEN is one.state
    passes(one, 1, awaited=10 * WORTH)
    assert GateState.RESTING is one.state
    assert 1 == one.closings


def test_what_two_wait_for_is_waited_for_once() -> None:
    """A hold with two claims is one hold, and a second one adds its own."""
    one = gate()
    for hold in (1, 1, 2):
        one.holds_back(hold, 400)
    assert {1: 400, 2: 400} == one._pass.awaited


def test_the_pace_is_that_of_full_passes() -> None:
    """Averaged over tokens; a declared one stands; what is long ago fades."""
    pace = Pace(0)
    assert 0 == pace.tokens_per_tick
    for tokens in (2_000, 2_000, 2_000, 100):
        pace.add(tokens)
    assert 1_900 < pace.tokens_per_tick < 2_000
    for _ in range(4 * MEMORY_TOKENS // 500):
        pace.add(500)
    assert 500 <= pace.tokens_per_tick < 520
    assert 7 == replace(pace, declared=7).tokens_per_tick


def test_an_unknown_pace_closes_nothing() -> None:
    """As long as nothing was computed, waiting cost nothing that is known."""
    one = gate(prefill_tokens_per_tick=None)
    passes(one, 500, awaited=16)
    assert GateState.OPEN is one.state


class Served:
    """An engine whose store has eight pages of every family; each request is visited until it is admitted."""

    def __init__(self, hand: Any, **settings: Any) -> None:
        self.h: Hand = hand(**{**GATED, **settings})
        self.family = 10

    @property
    def gate(self) -> Gate:
        return self.h.core.gate

    def serve(self) -> tuple[Admission, int]:
        """The next family: how it was admitted, and how many passes it was held back."""
        h = self.h
        self.family += 1
        tokens = h.prompt(8, self.family)
        h.put(tokens)
        handle = h.arrive(f"r{self.family}", tokens)
        for held_back in range(300):
            h.tick()
            got = h.visit(handle)
            if not isinstance(got, Skip):
                h.compute(handle)
                h.engine.finish(handle)
                h.shrink(tokens, 0)
                return got, held_back
        raise AssertionError("never admitted")


def test_a_slow_store_is_left_alone(hand: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The first request waits a little, those behind it do not; the log says so once, the record why."""
    served = Served(hand, delays=SLOW)
    with caplog.at_level(logging.WARNING, "stagehold"):
        first, held_back = served.serve()
    # Until more is lost than the span and the patience are worth.
    assert (0, (SPAN + PATIENCE * WORTH) // WORTH + 1) == (first.store_hit_tokens, held_back)
    said = "store off: waiting for it kept 600 tokens from being computed, beyond all that it brought"
    assert [f"{said}; it is tried again in 16 ticks"] == caplog.messages
    for _ in range(5):
        admission, held_back = served.serve()
        assert (0, 0) == (admission.store_hit_tokens, held_back)
    assert {"losing": 5} == served.h.engine.stats().declines
    assert 1 == served.h.engine.stats().gate_closings


def test_a_store_that_is_fast_again_is_used_again(hand: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One request after the other tries it; the others are not held back meanwhile; two that pay open the gate."""
    served = Served(hand, prefill_tokens_per_tick=SPAN // 4, delays=SLOW)
    served.serve()
    served.h.store._delays = Delays(exists=(1, 1), get=(1, 1), put=(1, 1))
    served.h.tick(16)
    assert GateState.TRYING is served.gate.state
    first, second = (served.h.arrive(name, served.h.prompt(8, n)) for n, name in enumerate("ab", start=3))
    served.h.tick()
    assert served.h.machine(first).data.query
    assert not served.h.machine(second).data.query
    served.h.engine.abort(first)
    served.h.engine.abort(second)
    served.h.tick()
    with caplog.at_level(logging.WARNING, "stagehold"):
        assert [SPAN, SPAN] == [served.serve()[0].store_hit_tokens for _ in range(2)]
        served.h.tick()
    assert GateState.OPEN is served.gate.state
    assert "store on again: pages came faster than they are computed, 2 times in a row" == caplog.messages[-1]
    assert SPAN == served.serve()[0].store_hit_tokens


def test_a_trial_that_fails_makes_the_rest_longer(hand: Any) -> None:
    """Up to the cap; each trial holds back one request, for as long as computing would take and the patience."""
    served = Served(hand, delays=SLOW)
    served.serve()
    for rest in (32, 64, 64):
        served.h.until(lambda: served.gate.state is GateState.TRYING)
        served.h.tick(41)  # what was read for nothing is out of the way
        _, held_back = served.serve()
        assert held_back <= (SPAN + PATIENCE * WORTH) // WORTH + 2
        assert (GateState.RESTING, rest) == (served.gate.state, served.gate._until - served.h.now)


def test_a_fast_store_stays(hand: Any) -> None:
    """What comes in fewer ticks than it is worth keeps the gate open for ever."""
    served = Served(hand, prefill_tokens_per_tick=SPAN // 4)
    assert {SPAN} == {served.serve()[0].store_hit_tokens for _ in range(30)}
    assert 0 == served.gate.closings


def test_without_a_gate_everybody_waits(hand: Any) -> None:
    """Off is the default, and counts nothing."""
    served = Served(hand, fetch_gate=FetchGate.OFF, prefill_tokens_per_tick=None, delays=SLOW)
    assert {SPAN} == {served.serve()[0].store_hit_tokens for _ in range(3)}
    assert (0, 0) == (served.gate.lost, served.gate._pass.computed)


def test_what_host_memory_has_is_claimed_through_a_closed_gate(hand: Any) -> None:
    """Nobody is held back for it."""
    h: Hand = hand(**{**GATED, "host_memory_mode": "cache"})
    tokens = h.prompt(8)
    h.put(tokens)
    h.serve(_ready(h, "a", tokens))
    h.until(lambda: not h.core.holds)
    h.shrink(tokens, 0)
    h.core.gate.lost = 1_000_000
    h.tick()
    assert GateState.RESTING is h.core.gate.state
    assert SPAN == h.admit(_ready(h, "b", tokens)).store_hit_tokens


def _ready(h: Hand, rid: str, tokens: Any) -> Any:
    handle = h.arrive(rid, tokens)
    h.tick(3)
    return handle


def test_a_snapshot_has_the_gate(hand: Any) -> None:
    """What was lost comes back with it."""
    h: Hand = hand(**GATED)
    h.core.gate.lost = 77
    taken = h.engine.snapshot()
    h.core.gate.lost = 1_000_000
    h.tick()
    h.engine.restore(taken)
    assert (77, GateState.OPEN) == (h.core.gate.lost, h.core.gate.state)
    assert copy.deepcopy(h.core.gate).lost == 77


def test_a_worth_without_a_gate_is_refused() -> None:
    """An option without its partner would do nothing."""
    with pytest.raises(ValidationError, match="prefill_tokens_per_tick=5 with fetch_gate=off would do nothing"):
        small_config(prefill_tokens_per_tick=5)


@pytest.mark.parametrize("setting", [{"eviction": Eviction.S3FIFO}, {"fetch_gate": FetchGate.AUTO}])
def test_ranks_of_another_choice_do_not_start_together(setting: dict[str, Any]) -> None:
    """What is chosen is one of the facts of the start."""
    (name, value), = setting.items()  # fmt: skip

    def program(member: Any) -> None:
        with Hand(attach=False, engine_options={"group": member}, **(setting if member.rank else {})) as hand:
            hand.tick()

    _, outcomes = in_turns(2, 1, program)
    for outcome in outcomes:
        assert isinstance(outcome.error, Diverged)
        assert f"started with another {name}" in str(outcome.error)
        assert str(value) in str(outcome.error)


def test_ranks_decide_alike() -> None:
    """Two ranks whose stores answer at their own times: one digest, one tree, one gate."""

    def program(member: Any) -> tuple[Any, ...]:
        delays = Delays((1, 2 + member.rank), (1, 30 + 9 * member.rank), (1, 3))
        settings = {**GATED, "eviction": Eviction.S3FIFO, "device_pages": 48}
        with Hand(delays=delays, engine_options={"group": member}, **settings) as hand:
            _serve_a_crowd(hand)
            one = hand.core.gate
            assert one.closings
            return hand.engine.digest(), hand.core.tree.digest(), one.lost, one.closings, one.state

    _, outcomes = in_turns(2, 3, program)
    first, second = (outcome.value for outcome in outcomes)
    assert first == second


def _serve_a_crowd(h: Hand) -> None:
    waiting = []
    for n in range(120):
        tokens = h.prompt(8, 1 + n * n % 11)
        h.put(tokens)
        waiting.append(h.arrive(f"r{n}", tokens))
        h.tick()
        for handle in list(waiting):
            got = h.visit(handle)
            if isinstance(got, Admission) and got.admitted:
                h.compute(handle)
                h.engine.finish(handle)
                waiting.remove(handle)
    h.until(lambda: all(h.engine.state_of(handle) for handle in waiting) and not h.core.operations.live)
    for handle in waiting:
        h.engine.abort(handle)


@pytest.mark.parametrize("seed", range(8))
def test_walks_through_small_worlds_keep_all_books(seed: int) -> None:
    """Any act in any order, with queues and a gate: the World itself counts everything after each tick."""
    shape = drawn(seed)
    change = {"eviction": Eviction.S3FIFO, "fetch_gate": FetchGate.AUTO, "prefill_tokens_per_tick": 1 + seed * 3}
    world = World(seed, replace(shape, config=shape.config.model_copy(update=change)))
    Walk(world).run(200)
    world.close()
