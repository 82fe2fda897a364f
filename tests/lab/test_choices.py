"""What a trace tells of the choices that an engine leaves to people: order of eviction, fetch or compute, retries."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stagehold import Chain, Eviction, FetchGate, Namespace
from stagehold.lab.foresight import NEVER, Future
from stagehold.lab.simulate import IDLE_NS, Simulation, SimulationOptions
from stagehold.lab.simulate_report import faults, whole
from stagehold.lab.virtual_costs import CostModel
from stagehold.lab.virtual_store import LinkSpeed
from stagehold.testing.tree_shape import text_tokens

COST = CostModel("test", prefill_tokens_per_second=10_000, step_ms=10, kv_token_bytes=1000, kv_bytes_per_second=0)
SLOW, FAST = LinkSpeed(2e6, (1, 1)), LinkSpeed(1e9, (1, 1))
"""A fifth of what is computed in the same time, and a hundred times as much."""
BLOCK = 512


def trace(path: Path, rows: list[tuple[float, list[int]]]) -> Path:
    """Mooncake lines of (arrival in s, blocks), each prompt a token longer than its blocks."""
    lines = [
        {"timestamp": round(seconds * 1000), "input_length": BLOCK * len(blocks) + 1, "output_length": 2,
         "hash_ids": [*blocks, 100_000 + line]}
        for line, (seconds, blocks) in enumerate(rows)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(path: Path, **more: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "cost": COST, "device_tokens": 64 * 64, "link": FAST, "trace": path, "steps_per_pass": 1, **more,
    }  # fmt: skip
    simulation = Simulation(SimulationOptions(**chosen))
    found = whole(simulation, simulation.run())
    assert [] == faults(found)
    return found


def hits(found: dict[str, Any]) -> int:
    return int(found["device_hit_tokens"] + found["store_hit_tokens"])


# Eviction


@pytest.fixture(name="scanned", scope="module")
def _scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prompt that comes again and again, and others that never return, more than the pool has room for."""
    rows, others = [], 1000
    for n in range(40):
        rows.append((n, [1, 2, 3]))
        rows += [(n + part / 4, [others + 10 * n + part, others + 10 * n + part + 5]) for part in (1, 2, 3)]
    return trace(tmp_path_factory.mktemp("scan") / "t.jsonl", rows)


def test_who_knows_the_future_hits_most_and_a_scan_costs_the_queues_least(scanned: Path) -> None:
    """Device hits alone; the same requests, answered alike."""
    from stagehold.lab.policies.shipped import policy_named

    none = policy_named("none")
    found = {
        name: run(scanned, policy=none, **more)
        for name, more in {
            "lru": {}, "s3fifo": {"settings": {"eviction": Eviction.S3FIFO}}, "belady": {"belady": True},
        }.items()
    }  # fmt: skip
    assert list(found) == [one["eviction"] for one in found.values()]
    assert {160} == {one["requests"] for one in found.values()}
    assert hits(found["lru"]) < hits(found["s3fifo"]) < hits(found["belady"]) <= found["belady"]["ideal_hit_tokens"]


def test_the_future_is_what_has_not_been_admitted() -> None:
    """A page of which a token is left to compute, in prompts that are still to run."""
    prompts = [Chain(Namespace("m"), [*text_tokens(text, 64), 7], 64) for text in ("ab", "ac", "ab")]
    future = Future(prompts)
    first, second = prompts[0].page_key(0), prompts[0].page_key(1)
    assert (0, 0) == (future.next_use(first), future.next_use(second))
    future.admitted(0)
    assert (1, 2) == (future.next_use(first), future.next_use(second))
    future.admitted(2)
    assert (1, NEVER) == (future.next_use(first), future.next_use(second))
    assert NEVER == future.next_use(b"another page")


# Fetch or compute


@pytest.fixture(name="returning", scope="module")
def _returning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and twenty prompts of three blocks, twenty families in turn, on a pool for two of them."""
    rows = [(n / 2, [100 + n % 20, 200 + n % 20, 300 + n % 20]) for n in range(120)]
    return trace(tmp_path_factory.mktemp("returning") / "t.jsonl", rows)


GATES: dict[str, dict[str, Any]] = {
    "declared": {"fetch_gate": FetchGate.AUTO},
    "measured": {"fetch_gate": FetchGate.AUTO, "prefill_tokens_per_tick": None},
}


@pytest.mark.parametrize("gate", GATES)
def test_a_store_slower_than_computing_costs_next_to_nothing(returning: Path, gate: str) -> None:
    """Half of the first tokens come as early as without a store, within 5 %; without the gate they come much later."""
    from stagehold.lab.policies.shipped import policy_named

    bare = run(returning, policy=policy_named("none"))
    without, gated = run(returning, link=SLOW), run(returning, link=SLOW, settings=GATES[gate])
    assert without["ttft_ms"]["p50"] > 1.5 * bare["ttft_ms"]["p50"]
    assert gated["ttft_ms"]["p50"] <= 1.05 * bare["ttft_ms"]["p50"]
    assert 0 < gated["gate_closings"] <= 5
    assert gated["declines"]["losing"] > 60
    assert gated["read_bytes"] < without["read_bytes"] / 4


def test_a_fast_store_loses_no_hits_to_the_gate(returning: Path) -> None:
    """At least 98 % of those without it; it never closes."""
    without, gated = run(returning), run(returning, settings=GATES["declared"])
    assert hits(without) > 80 * 3 * BLOCK
    assert hits(gated) >= 0.98 * hits(without)
    assert (0, {}) == (gated["gate_closings"], gated["declines"])
    assert gated["ttft_ms"]["p50"] <= 1.05 * without["ttft_ms"]["p50"]


def test_equal_runs_have_equal_digests_with_gate_and_queues(returning: Path) -> None:
    """What is chosen changes the run, and nothing but what is chosen."""
    chosen = {"link": SLOW, "settings": {**GATES["declared"], "eviction": Eviction.S3FIFO}}
    first, again, other = run(returning, **chosen), run(returning, **chosen), run(returning, link=SLOW)
    assert first == again
    assert first["digest"] != other["digest"]


# Retries, over time


def test_a_warm_cache_stays_warm(tmp_path: Path) -> None:
    """Twelve families come round and round: no round hits less than the one before it, but for a page a request."""
    families, rounds = 12, 10
    rows = [(n / 2, [100 + n % families, 200 + n % families, 300 + n % families]) for n in range(families * rounds)]
    found = run(trace(tmp_path / "t.jsonl", rows))
    series = found["series"]
    ends = [max(i for i, s in enumerate(series["seconds"]) if s <= families / 2 * (1 + r)) for r in range(rounds)]
    total = [series["device_hit_tokens"][at] + series["store_hit_tokens"][at] for at in ends]
    gained = [after - before for before, after in pairwise(total)]
    assert all(after >= before - families * 64 for before, after in pairwise(gained)), gained
    assert min(gained[1:]) >= (families - 1) * 3 * BLOCK


# On the traces that come with the package


@pytest.mark.soak
@pytest.mark.parametrize("name", ["conversation", "synthetic", "agentic", "miniswe"])
def test_the_gate_on_every_trace(name: str) -> None:
    """A slow store within 5 % of none at the median, or a lookup's pass; a fast one with 98 % of its hits."""
    from stagehold.lab.cells import Cell
    from stagehold.lab.cells import run as run_cell

    users = {"users": 8} if name == "miniswe" else {}
    sizes = {"conversation": (200, 8192), "synthetic": (200, 8192), "agentic": (120, 4096), "miniswe": (150, 1024)}
    requests, pages = sizes[name]
    base = Cell(trace=name, requests=requests, device_pages=pages, staging_pages=pages * 6 // 5, options=users)
    gated = replace(base, options={**users, "settings": {"fetch_gate": "auto"}})
    bare, slow = run_cell(replace(base, policy="none")), run_cell(replace(gated, store_gbps=1.0))
    assert slow["ttft_ms"]["p50"] <= max(1.05 * bare["ttft_ms"]["p50"], bare["ttft_ms"]["p50"] + IDLE_NS / 1e6)
    fast, without = run_cell(replace(gated, store_gbps=200.0)), run_cell(replace(base, store_gbps=200.0))
    assert hits(fast) >= 0.98 * hits(without)
