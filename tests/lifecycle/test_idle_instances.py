"""A thousand instances to which nothing happens: a tick takes no step for them, and hardly any time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

import pytest

from stagehold import Engine, Namespace, RequestState
from stagehold.lifecycle import assembly
from stagehold.machines import Machine, Stepper
from stagehold.machines.compile import stepper_of
from stagehold.specs.declare import MachineSpec
from stagehold.testing.hand import Hand, small_config

MANY = 1_000
TICKS = 400
ROUNDS = 60
STEPS_OF_A_PASS = 7
PROMPT = tuple(range(48))


def engine_with(requests: int) -> Engine:
    """An engine without a store in which so many requests rest, as many as the scheduler may leave waiting."""
    engine = Engine(small_config())
    handles = [engine.arrive(f"r{n}", PROMPT, Namespace("idle"), 1) for n in range(requests)]
    for _ in range(3):
        engine.tick()
    assert {RequestState.CAPPED} >= {engine.state_of(handle) for handle in handles}
    return engine


def ticking(engine: Engine) -> int:
    """Nanoseconds of this thread's processor time for `TICKS` idle ticks."""
    begin = thread_time_ns()
    for _ in range(TICKS):
        engine.tick()
    return thread_time_ns() - begin


def test_a_tick_takes_as_many_steps_with_a_thousand_idle_instances_as_with_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the pass itself, and no other, whatever rests or waits for a clock."""
    steps: list[str] = []
    bind = assembly.bind

    def counted(spec: MachineSpec, **bound: Any) -> Stepper:
        stepper = bind(spec, **bound)
        noted = {event: noting(f"{spec.name}.{event}", step) for event, step in stepper.steps.items()}
        return stepper_of(spec, stepper.source, noted, stepper.birth, stepper.module)

    def noting(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def both(_stepper: Stepper, m: Machine, arg: Any = None) -> Any:
            steps.append(name)
            return step(m, arg)

        return both

    monkeypatch.setattr(assembly, "bind", counted)
    with Hand(retry_interval_ticks=64, device_pages=MANY) as none, Hand(retry_interval_ticks=64) as many:
        for n in range(MANY):
            many.arrive(f"r{n}", many.prompt(4, n + 1))
        many.until(lambda: all(m.state is RequestState.RETRY for m in many.core.requests.values()))
        for h in (none, many):
            steps.clear()
            h.tick()
            assert (STEPS_OF_A_PASS, {"tick"}) == (len(steps), {step.partition(".")[0] for step in steps})


def test_a_thousand_idle_instances_add_at_most_a_twentieth_to_a_tick() -> None:
    """Best of interleaved rounds, in processor time."""
    none, many = engine_with(0), engine_with(MANY)
    gc.collect()
    gc.disable()
    try:
        rounds = [(ticking(none), ticking(many)) for _ in range(ROUNDS)]
    finally:
        gc.enable()
    bare, loaded = (min(column) for column in zip(*rounds, strict=True))
    none.close()
    many.close()

    assert loaded <= 1.05 * bare
