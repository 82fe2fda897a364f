"""Engines come and go without a trace."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
import numpy as np
from stagehold import Engine, EngineConfig, HostMode, Namespace
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler

LAYOUT = Layout(layers=2, page_size=16)
TOKENS = np.arange(100, dtype=np.uint32)

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

def life(number):
    config = EngineConfig(
        page_size=16, device_pages=32, staging_pages=32, largest_request_tokens=256,
        host_memory_mode=HostMode.BUFFER_ONLY, prefetch_threshold_tokens=16,
        parts=LAYOUT.parts, page_part_bytes=LAYOUT.page_part_bytes,
    )
    engine = Engine(config, store=SimulatedStore(number))
    scheduler = Scheduler(engine, PatternRunner(LAYOUT, engine.device_bytes.tensor))
    for i in range(2):
        scheduler.submit(f"r{i}", TOKENS[: 60 + i], Namespace(model="m"), 2)
    while not scheduler.idle:
        scheduler.step()
    engine.drain(50)
    engine.close()
    return weakref.ref(engine)

seen = []
sizes = []
for number in range(100):
    seen.append(life(number))
    sizes.append(resident())
alive = sum(ref() is not None for ref in seen)
gc.collect()
print(alive, sum(ref() is not None for ref in seen), sizes[99] - sizes[19])
"""


def test_a_hundred_engines_leave_no_memory_behind() -> None:
    """Resident memory after the 100th is within 4 MiB of that after the 20th, and no engine is alive."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    before_collection, after_collection, grown = map(int, done.stdout.split())

    assert 0 == after_collection
    assert grown <= 4 << 20
    assert before_collection <= 1, "engines are in reference cycles: they live until the collector comes"
