"""A run's log alone: whole, legal, and enough to say where everything ended."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from stagehold import AuditLog, HostMode, Skip
from stagehold.cache.stores.simulated import Delays, Rates, SimulatedStore
from stagehold.machines import MACHINES, HandleKey
from stagehold.machines.audit import replay, verify
from stagehold.testing.hand import Hand


@pytest.fixture
def log(tmp_path) -> Iterator[AuditLog]:
    """Asked for before the engine, so that it is closed after it."""
    with AuditLog(tmp_path / "a.jsonl") as made:
        yield made


def run(hand, log: AuditLog, mode: HostMode) -> tuple[Hand, dict[int, int]]:
    """Two hundred passes of mixed traffic over an unsteady store, logged; the engine and its live machines' states."""
    store = SimulatedStore(5, delays=Delays((1, 3), (1, 8), (1, 8)), rates=Rates(fail=0.04, short=0.03, stall=0.01))
    h = hand(
        store=store, host_memory_mode=mode, staging_pages=30, fetch_limit=40, put_limit=40, lookup_limit=20,
        retry_interval_ticks=3, wait_base_ticks=6, engine_options={"sink": log.block},
    )  # fmt: skip
    dice, waiting, running = random.Random(11), [], []
    for number in range(200):
        if len(waiting) < 6:
            tokens = h.prompt(dice.randint(2, 20), dice.randint(1, 4), shared=dice.randint(0, 4))
            waiting.append(h.arrive(f"r{number}", tokens))
        h.tick()
        for handle in dice.sample(waiting, len(waiting)):
            answer = h.visit(handle)
            if not isinstance(answer, Skip) and answer.admitted:
                waiting.remove(handle)
                running.append(handle)
            elif dice.random() < 0.03:
                waiting.remove(handle)
                h.engine.abort(handle)
        for handle in [handle for handle in running if dice.random() < 0.5]:
            running.remove(handle)
            h.compute(handle)
            if dice.random() < 0.2:
                waiting.append(h.engine.retract(handle))
            else:
                h.engine.finish(handle)
        h.core.tree.evict(dice.randint(0, 8))
    h.tick()
    core = h.core
    alive = {**core.requests, **core.holds, **core.writes}
    return h, {number: int(m.state) for number, m in alive.items()}


def test_the_engine_s_own_machines_are_born_before_all_else(hand):
    """As the first of the log, each by its own name and as attempt 0."""
    blocks = []
    h = hand(engine_options={"sink": blocks.append})
    h.arrive("a", h.prompt(2))
    h.tick()
    first, *_ = blocks
    standing = [birth for birth in first.births if isinstance(birth.key, HandleKey) and not birth.key.namespace]
    assert [("store", 0), ("attachment", 0), ("tick", 0)] == [(birth.key.rid, birth.key.attempt) for birth in standing]


@pytest.mark.parametrize("mode", list(HostMode))
def test_a_run_s_log_is_sound_and_replays_to_the_live_states(log, hand, mode):
    """Chain, rows, continuity and tokens; then state and counters of every instance that lives."""
    h, alive = run(hand, log, mode)
    stats = h.engine.stats()
    found = verify(log.path, head=h.engine.digest())
    assert found.fault is None
    assert found.records > 1_000
    replayed = replay(log.path)
    assert replayed.digest == h.engine.digest()
    assert alive == {number: int(replayed.instances[number].state) for number in alive}
    totals = replayed.totals
    assert (stats.queried, stats.spliced, stats.open_claims) == (totals.queried, totals.spliced, totals.open)
    assert stats.losses == {loss.name.lower(): tokens for loss, tokens in totals.losses.items() if tokens}


def test_counters_replay_to_those_of_the_instances(log, hand):
    """Issues, deferrals and tries come back from the rows that count them."""
    h, _ = run(hand, log, HostMode.BUFFER_ONLY)
    replayed = replay(log.path)
    assert h.core.requests
    for number, m in h.core.requests.items():
        counters = replayed.instances[number].counters
        assert (m.issues, m.defers) == (counters["issues"], counters["defers"])


def test_the_ends_of_a_closed_run_are_in_its_log(log, hand):
    """Closing is recorded like everything else: all finite machines have ended, all standing ones are closed."""
    h, _ = run(hand, log, HostMode.BUFFER_ONLY)
    h.engine.close()
    replayed = replay(log.path)
    kinds = {spec.name: spec for spec in MACHINES}
    for instance in replayed.instances.values():
        spec = kinds[instance.machine]
        assert "TERMINAL" == spec.state(type(spec.initial)(instance.state)).kind.name, instance
    assert 0 == replayed.totals.open
