"""What became of pages that were read, and how often requests asked again: counted without asking the engine."""

from __future__ import annotations

import numpy as np
import pytest

from stagehold.cache.stores.protocol import Verdict
from stagehold.lab.cells import Cell
from stagehold.lab.simulate import Simulation
from stagehold.lab.simulate_report import figures
from stagehold.lab.virtual_reads import Reads, Relaunches
from stagehold.lab.virtual_store import LinkSpeed, VirtualClock, VirtualStore
from stagehold.machines import Block, encode

PAGE_NS = 1_000


def words(*contents: int) -> np.ndarray:
    return np.array(contents, dtype=np.uint64)


def test_each_read_serves_one_use() -> None:
    """A page that was read twice and used once was wasted once; what was never read is no use of a read."""
    reads = Reads()
    reads.brought([1, 2, 2, 3])
    reads.taken_over(words(1, 2, 9))
    assert (4, 2, 2) == (reads.pages, reads.used, reads.wasted)
    reads.taken_over(words(1, 2))  # the second read of 2, and 1 from host memory
    assert (3, 1) == (reads.used, reads.wasted)
    reads.forget()
    reads.taken_over(words(3))
    assert (0, 0, 0) == (reads.pages, reads.used, reads.wasted)


def test_a_page_counts_as_read_when_it_has_come() -> None:
    """In the middle of a fetch, too, whose head may be used before its tail has come; what is missing was not read."""
    clock = VirtualClock()
    store = VirtualStore(clock, 1000, 8, LinkSpeed(1e9, (0.001, 0.001)), seed=1, capacity_bytes=0)
    clock.now_ns = 0
    bodies = [memoryview(bytearray(number.to_bytes(8, "little"))) for number in (5, 6, 7)]
    store.put(1, [b"a" * 32, b"b" * 32, b"c" * 32], bodies, 0)
    verdicts: tuple[Verdict, ...] = ()
    while len(verdicts) < len(bodies):
        clock.now_ns += PAGE_NS
        verdicts = next((report.verdicts for report in store.poll(0)), verdicts)
    assert {Verdict.STORED} == set(verdicts)
    store.begin()
    into = [memoryview(bytearray(8)) for _ in range(4)]
    store.get_into(2, [b"a" * 32, b"b" * 32, b"c" * 32, b"d" * 32], into, 0)
    seen = []
    for _ in range(50):
        clock.now_ns += PAGE_NS
        done = any(report.done for report in store.poll(0))
        seen.append(store.reads.pages)
        if done:
            break
    assert {1, 2, 3} <= set(seen)
    assert (3, 3, 0) == (store.read_pages, store.reads.pages, store.lookups)
    store.reads.taken_over(words(5, 6, 7))
    assert 0 == store.reads.wasted


@pytest.mark.parametrize("policy", ["blind", "live"])
def test_launches_are_counted_from_the_records(policy: str) -> None:
    """As many as the engine's own rows say, and of no attempt more than it was launched."""
    cell = Cell(trace="agentic", requests=24, policy=policy, device_pages=600, staging_pages=600, store_gbps=2.0,
                options={"users": 32, "scale": 64, "longest_pause_s": 5.0, "accelerators": 1})  # fmt: skip
    simulation = Simulation(cell.simulation())
    samples = simulation.run()
    assert samples.stats is not None
    due = {name: times for name, times in samples.stats.rows_taken.items() if name.startswith("request.retry.due.")}
    found = figures(simulation, samples)
    assert found["retries"] == sum(times for name, times in due.items() if not name.endswith("CAP")) > 0
    assert 0 < found["max_retries"] <= found["retries"]
    assert found["lookups"] <= found["retries"] + found["requests"]


def test_what_stands_behind_the_counter_gets_every_block() -> None:
    """Blocks pass through as they are."""
    block, got = Block(0, 1, b"", b"", (), b"", b""), []
    counted = Relaunches(got.append)
    counted.block(block)
    assert ([encode(block)], 0, 0) == ([encode(one) for one in got], counted.all, counted.most)
