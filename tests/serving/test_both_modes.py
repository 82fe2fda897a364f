"""Switching the mode needs no change in the caller: one program, run with host memory as a buffer and as a tier."""

from __future__ import annotations

import numpy as np
import pytest

from stagehold import EngineConfig, HostMode, Namespace, WritePolicy
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.lifecycle.engine import Engine
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler

SPACE = Namespace("both")
LAYOUT = Layout(page_size=16)
MODES = [
    (HostMode.BUFFER_ONLY, WritePolicy.WRITE_THROUGH),
    (HostMode.CACHE, WritePolicy.WRITE_THROUGH),
    (HostMode.CACHE, WritePolicy.WRITE_BACK),
]


def conversations(turns: int = 3, talks: int = 8) -> list[tuple[str, np.ndarray]]:
    """Each turn goes on from the one before; the talks take turns, so that a pool of a few of them forgets."""
    found = []
    for turn in range(1, turns + 1):
        for talk in range(talks):
            tokens = np.arange(turn * 70, dtype=np.uint32) + np.uint32(100_000 * talk)
            found.append((f"talk{talk}-turn{turn}", tokens))
    return found


def program(mode: HostMode, policy: WritePolicy, medium: Medium) -> dict[str, int]:
    """A server's life: serve everything one after the other, drain, close. Knows nothing of the mode."""
    config = EngineConfig(
        page_size=16, device_pages=40, staging_pages=48, largest_request_tokens=240, host_memory_mode=mode,
        write_policy=policy, prefetch_threshold_tokens=16, parts=LAYOUT.parts,
        page_part_bytes=LAYOUT.page_part_bytes,
    )  # fmt: skip
    store = SimulatedStore(delays=Delays(), medium=medium)
    engine = Engine(config, store=store, strict=True)
    runner = PatternRunner(LAYOUT, engine.device_bytes.tensor)
    scheduler = Scheduler(engine, runner, token_budget=512)
    for _ in range(20):
        scheduler.step()
    hits = 0
    for rid, tokens in conversations():
        scheduler.submit(rid, tokens, SPACE, 4)
        while not scheduler.idle:
            hits += sum(one.admission.hit_tokens for one in scheduler.step().admitted)
    drained = engine.drain(2_000)
    engine.close()
    stats = engine.stats()
    return {
        "hits": hits,
        "unwritten": drained.unwritten,
        "wrong": runner.wrong_bytes + runner.phantom_tokens + stats.violations,
        "stored": len(medium.names()),
        "local": stats.local,
    }


@pytest.mark.parametrize(("mode", "policy"), MODES)
def test_one_program_runs_in_every_mode(mode, policy):
    """Right bytes, all turns hit their conversation's earlier turns, and everything is in the store at the end."""
    found = program(mode, policy, Medium())
    assert (0, 0) == (found["wrong"], found["unwritten"])
    pages_of_a_talk = (70 // 16) + (140 // 16) + (210 // 16)
    assert found["hits"] >= 8 * (pages_of_a_talk - 210 // 16) * 16 * 0.9
    assert found["stored"] >= 8 * (210 // 16)


def test_a_start_in_another_mode_finds_what_the_first_has_left():
    """What is stored does not depend on the mode either."""
    medium = Medium()
    first = program(*MODES[0], medium)
    for mode, policy in MODES[1:]:
        again = program(mode, policy, medium)
        assert 0 == again["wrong"]
        assert again["hits"] > first["hits"]
