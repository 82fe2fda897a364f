"""How long a long audit log takes to verify and to replay: a real engine writes it, in crowded traffic from one seed.

Owns the traffic and the measurement. The yardstick is what any reader must do: take every line and parse its JSON.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import orjson

from stagehold import AuditLog, Engine, EngineConfig, Handle, HostMode, Limits, Namespace, Skip
from stagehold.cache.stores.simulated import Delays, Rates, SimulatedStore
from stagehold.lab.clock import warm_up
from stagehold.machines import Block
from stagehold.machines.audit import replay, standing, verify
from stagehold.machines.audit_explain import explain

RECORDS = 1_000_000
SPACE = Namespace("long log")
PAGE = 16
TEXTS, TEXT_PAGES, TEXT_TOKENS = 64, 12, 100_000
WAITING, RUNNING = 24, 4
CONFIG = EngineConfig(
    page_size=PAGE,
    device_pages=256,
    staging_pages=96,
    largest_request_tokens=512,
    host_memory_mode=HostMode.BUFFER_ONLY,
    prefetch_threshold_tokens=PAGE,
    limits=Limits(retry_interval_ticks=3),
)


def bench_log(records: int = RECORDS, seed: int = 1) -> dict[str, Any]:
    """Seconds of processor time to write, read, verify, replay and explain a log of at least `records` records.

    `read_s` parses every line and does nothing with it. The log is replayed twice: `same_standing` says whether both
    gave the same, and `same_head` whether both readers ended at the digest that the engine had.
    """
    with TemporaryDirectory(prefix="stagehold-log-") as folder:
        path = Path(folder) / "long.jsonl"
        begin = process_time()
        head = write_log(path, records, seed)
        write_s = process_time() - begin
        read_s, _ = _timed(lambda: _read(path))
        verify_s, found = _timed(lambda: verify(path, head=head))
        replay_s, first = _timed(lambda: replay(path))
        again_s, second = _timed(lambda: replay(path))
        explain_s, told = _timed(lambda: explain(path, "r0"))
        return {
            "records": found.records,
            "blocks": found.blocks,
            "instances": found.instances,
            "bytes": path.stat().st_size,
            "sound": found.sound,
            "same_standing": standing(first) == standing(second),
            "explained": len(told.attempts) == 1 and told.attempts[0].over,
            "same_head": first.digest == second.digest == found.digest == head,
            "write_s": write_s,
            "read_s": read_s,
            "verify_s": verify_s,
            "replay_s": min(replay_s, again_s),
            "explain_s": explain_s,
            "verify_over_read": verify_s / read_s,
            "replay_over_read": min(replay_s, again_s) / read_s,
            "explain_over_read": explain_s / read_s,
            "verify_us_a_record": 1e6 * verify_s / found.records,
        }


def write_log(path: Path, records: int, seed: int = 1) -> bytes:
    """Serve requests until the log has so many records; returns the digest of its last block."""
    written = 0
    with AuditLog(path) as log:

        def sink(block: Block) -> None:
            nonlocal written
            written += len(block.table())
            log.block(block)

        store = SimulatedStore(seed, delays=Delays((1, 2), (1, 6), (1, 4)), rates=Rates(fail=0.01, lose=0.02))
        engine = Engine(CONFIG, store=store, sink=sink)
        warm_up(engine)
        traffic = _Traffic(engine, seed)
        while written < records:
            traffic.step()
        engine.close()
        return engine.digest()


class _Traffic:
    """A scheduler that keeps a queue full and lets a few requests run, over texts of which many share their heads."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._dice = random.Random(f"long log {seed}")  # noqa: S311 - reproducible on purpose
        self._waiting: dict[Handle, int] = {}
        self._running: deque[Handle] = deque()
        self._arrived = 0

    def step(self) -> None:
        """One pass."""
        while len(self._waiting) < WAITING:
            self._arrive()
        self._engine.tick()
        for handle in list(self._waiting):
            self._visit(handle)
        while len(self._running) > RUNNING:
            self._engine.finish(self._running.popleft())

    def _arrive(self) -> None:
        dice = self._dice
        text, tokens = dice.randrange(TEXTS), dice.randint(1, TEXT_PAGES) * PAGE + dice.randrange(1, PAGE)
        prompt = np.arange(tokens, dtype=np.uint32) + np.uint32(text * TEXT_TOKENS)
        handle = self._engine.arrive(f"r{self._arrived}", prompt, SPACE, 1)
        self._waiting[handle] = tokens
        self._arrived += 1

    def _visit(self, handle: Handle) -> None:
        plan = self._engine.select(handle, TEXT_TOKENS)
        if isinstance(plan, Skip):
            return
        admission = self._engine.commit(plan)
        if admission.admitted:
            tokens = self._waiting.pop(handle)
            self._engine.extend(handle, admission.extend_tokens)
            self._engine.publish(handle, tokens)
            self._running.append(handle)


def _read(path: Path) -> int:
    with path.open("rb") as file:
        return sum(bool(orjson.loads(line)) for line in file)


def _timed(call: Any) -> tuple[float, Any]:
    begin = process_time()
    result = call()
    return process_time() - begin, result
