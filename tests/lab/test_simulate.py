"""Virtual time: what a pass costs, what the link lets through, and that equal options give equal runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagehold import Engine
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lab.expand import Scale, ScaleError
from stagehold.lab.policies.shipped import NONE
from stagehold.lab.simulate import Simulation, SimulationOptions
from stagehold.lab.simulate_report import faults, figures, whole
from stagehold.lab.simulate_series import SAMPLES_MAX
from stagehold.lab.stats_prefixes import page_words, prints
from stagehold.lab.traces import TraceError
from stagehold.lab.virtual_costs import (
    ACCELERATORS,
    MODELS,
    AcceleratorName,
    CostModel,
    ModelName,
    device_tokens,
    preset,
)
from stagehold.lab.virtual_runner import answers
from stagehold.lab.virtual_store import LinkSpeed

COST = CostModel("test", prefill_tokens_per_second=10_000, step_ms=10, kv_token_bytes=1000, kv_bytes_per_second=0)
FAST = LinkSpeed(1e9, (1, 1))
BLOCK = 512


def trace(path: Path, *rows: tuple[float, int, list[int]]) -> Path:
    """A Mooncake trace of (arrival in s, answer, whole blocks), each prompt one token longer than its blocks."""
    lines = [
        {
            "timestamp": round(seconds * 1000),
            "input_length": BLOCK * len(blocks) + 1,
            "output_length": answer,
            "hash_ids": [*blocks, 10_000 + line],
        }
        for line, (seconds, answer, blocks) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def options(path: Path, **more: Any) -> SimulationOptions:
    chosen: dict[str, Any] = {
        "cost": COST, "device_tokens": 64 * 64, "link": FAST, "strict": True, "trace": path, "steps_per_pass": 1,
    }  # fmt: skip
    return SimulationOptions(**(chosen | more))


def lie_after_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on the store reads nothing and says that it did."""
    warm_up = Simulation._warm_up

    def planted(self: Simulation, engine: Engine) -> None:
        warm_up(self, engine)
        monkeypatch.setattr(SimulatedStore, "_read", lambda _self, _name, _out: Verdict.HIT)

    monkeypatch.setattr(Simulation, "_warm_up", planted)


def run(chosen: SimulationOptions) -> dict[str, Any]:
    simulation = Simulation(chosen)
    found = whole(simulation, simulation.run())
    assert [] == faults(found)
    return found


@pytest.fixture(name="busy", scope="module")
def _busy(tmp_path_factory: pytest.TempPathFactory) -> SimulationOptions:
    """Forty prompts of three blocks from ten families, on a pool that holds two of them."""
    rows = [(n / 4, 3, [100 + n % 10, 200 + n % 10, 300 + n % 10]) for n in range(40)]
    return options(trace(tmp_path_factory.mktemp("t") / "t.jsonl", *rows))


def test_the_first_token_comes_when_the_prompt_is_computed(tmp_path: Path) -> None:
    """An idle pass of 5 ms to ask the store; 2,561 tokens at 10,000 a second; then three more steps of 10 ms."""
    (row,) = run(options(trace(tmp_path / "t", (2, 4, [1, 2, 3, 4, 5]))))["slowest"]

    assert (5, 261.1) == (row["admitted_ms"], row["ttft_ms"])
    assert 261.1 + 30 == pytest.approx(row["finished_ms"])


def test_two_prompts_share_the_time_of_a_pass(tmp_path: Path) -> None:
    """Who comes second waits for the first, and hits what it computed."""
    found = run(options(trace(tmp_path / "t", (0, 1, [1, 2, 3, 4]), (0, 1, [1, 2, 3, 4])), token_budget=2048))
    first, second = sorted(found["slowest"], key=lambda row: row["admitted_ms"])

    assert (0, 5) == (first["device_hit_tokens"], first["admitted_ms"])
    assert 5 + 204.8 == second["admitted_ms"]
    assert 2048 == second["device_hit_tokens"] == found["ideal_hit_tokens"]


def test_equal_options_give_equal_runs(busy: SimulationOptions) -> None:
    """Every figure, sample and digest; another seed draws other delays."""
    first, again = run(busy), run(busy)
    slow = replace(busy, link=LinkSpeed(1e9, (1, 60)))
    seeds = [run(replace(slow, seed=seed))["digest"] for seed in (1, 2)]

    assert first == again
    assert seeds[0] != seeds[1]


def test_what_left_the_device_comes_back_from_the_store(busy: SimulationOptions) -> None:
    """With a fast link nothing that was computed is computed again, and all of it passed the link."""
    found = run(busy)

    assert found["ideal_hit_tokens"] == found["device_hit_tokens"] + found["store_hit_tokens"] == 30 * 3 * BLOCK
    assert 0.9 < found["store_hit_tokens"] / found["ideal_hit_tokens"]
    assert found["read_bytes"] == found["fetched_tokens"] * 1000
    assert 10 * 3 * BLOCK * 1000 <= found["written_bytes"]
    assert 0 < found["compared_pages"]


def test_the_link_lets_through_what_it_says(busy: SimulationOptions) -> None:
    """At a hundredth of the speed bytes stay below speed x time, and prefixes are computed again."""
    found = run(replace(busy, link=LinkSpeed(1e6, (1, 1))))

    moved = found["read_bytes"] + found["written_bytes"]
    assert 0 < moved <= 1e6 * found["seconds"] + found["page_bytes"]
    assert found["device_hit_tokens"] + found["store_hit_tokens"] < found["ideal_hit_tokens"]


def test_a_store_has_room_for_what_it_has_room_for(busy: SimulationOptions) -> None:
    """Full-size pages are counted: room for two families of ten."""
    found = run(replace(busy, store_bytes=2 * 3 * BLOCK * 1000))

    assert 0 < found["evicted_store_pages"]
    assert found["store_hit_tokens"] < run(busy)["store_hit_tokens"]


def test_without_a_tier_the_device_pool_is_all(busy: SimulationOptions) -> None:
    """Nothing is written, read or queried, and what left the pool is computed again."""
    found = run(replace(busy, policy=NONE))

    assert (0, 0, 0, 0) == tuple(
        found[name] for name in ("store_hit_tokens", "read_bytes", "written_bytes", "queried_hit_tokens")
    )
    assert 40 == found["requests"]
    assert found["ideal_hit_tokens"] - found["device_hit_tokens"] == found["recomputed_tokens"] > 0


def test_more_steps_a_pass_make_fewer_ticks_and_the_same_hits(busy: SimulationOptions) -> None:
    """The answers have the same lengths; only the grain of time is coarser."""
    fine, coarse = run(replace(busy, steps_per_pass=1)), run(replace(busy, steps_per_pass=3))

    assert coarse["ticks"] < fine["ticks"]
    for name in ("requests", "output_tokens", "ideal_hit_tokens"):
        assert fine[name] == coarse[name]
    assert fine["device_hit_tokens"] + fine["store_hit_tokens"] == (
        coarse["device_hit_tokens"] + coarse["store_hit_tokens"]
    )


def test_an_idle_night_costs_no_ticks(tmp_path: Path) -> None:
    """Time jumps to the next arrival once nothing is under way."""
    found = run(options(trace(tmp_path / "t", (0, 2, [1]), (36_000, 2, [1]))))

    assert 36_000 < found["seconds"] < 36_001
    assert found["ticks"] < 200
    assert BLOCK == found["ideal_hit_tokens"] == found["device_hit_tokens"]


def test_samples_stay_few_and_reach_the_end(busy: SimulationOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of equal length, sums that only grow, the last of them the run's."""
    monkeypatch.setattr("stagehold.lab.simulate_series.SAMPLES_MAX", 32)
    found = run(busy)
    series = found["series"]

    assert 16 <= len(series["seconds"]) <= 33 < SAMPLES_MAX
    assert {len(series["seconds"])} == {len(column) for column in series.values()}
    for name in ("device_hit_tokens", "store_hit_tokens", "computed_tokens", "read_bytes"):
        assert series[name] == sorted(series[name])
        assert series[name][-1] == found[name]
    assert 0 < max(series["owned_slots"])


def test_a_page_with_other_content_is_a_phantom(busy: SimulationOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a store that says it read a page and did not."""
    lie_after_the_self_test(monkeypatch)
    simulation = Simulation(busy)
    found = figures(simulation, simulation.run())

    assert 0 < found["phantom_hit_tokens"]
    assert [f"{found['phantom_hit_tokens']:,} phantom hit tokens"] == faults(found)


def test_fingerprints_follow_content_and_place() -> None:
    """Equal prefixes have equal numbers, and anything earlier that differs changes all that follows."""
    tokens = np.arange(40, dtype=np.uint32)
    other = tokens.copy()
    other[[1, 2]] = other[[2, 1]]

    right, wrong = prints(page_words(tokens, 8)), prints(page_words(other, 8))

    assert 5 == len(right)
    assert not set(right.tolist()) & set(wrong.tolist())
    assert right[:3].tolist() == prints(page_words(tokens[:30], 8)).tolist()
    assert answers("a", 7, 3).tolist() == answers("a", 5, 5)[2:].tolist()


def test_costs_are_arithmetic_of_published_figures() -> None:
    """Half of the peak for prefill; weights and KV over 0.7 of the bandwidth for a step."""
    cost = preset(ModelName.LLAMA_3_1_8B, AcceleratorName.H100, 2)

    assert 2 * 32 * 8 * 128 * 2 == cost.kv_token_bytes == 131_072
    assert 2 * 989e12 * 0.5 / (2 * 8_030_261_248) == pytest.approx(cost.prefill_tokens_per_second)
    assert 1000 * 2 * 8_030_261_248 / (2 * 3.35e12 * 0.7) == pytest.approx(cost.step_ms)
    context_ns = 1e9 * 1_000_000 * 131_072 / (2 * 3.35e12 * 0.7)
    assert cost.pass_ns(0, 2, 1_000_000) == pytest.approx(2e6 * cost.step_ms + context_ns)
    assert cost.pass_ns(0, 0, 0) == 0
    assert cost.pass_ns(1, 0, 0) == cost.pass_ns(1, 1, 0) == pytest.approx(1e6 * cost.step_ms)
    assert cost.pass_ns(100_000, 2, 0) == pytest.approx(1e14 / cost.prefill_tokens_per_second + 1e6 * cost.step_ms)
    assert 3 == cost.steps_per_pass
    assert (2 * 80e9 * 0.9 - 16_060_522_496) // 131_072 == device_tokens(
        ModelName.LLAMA_3_1_8B, AcceleratorName.H100, 2
    )
    assert set(MODELS) == set(ModelName)
    assert set(ACCELERATORS) == set(AcceleratorName)
    with pytest.raises(ValueError, match="a pace and a step above zero"):
        replace(cost, step_ms=0)


def test_what_cannot_be_simulated_is_said(tmp_path: Path) -> None:
    """No requests, a link of nothing, blocks that a scale would cut."""
    (tmp_path / "t").write_text("\n")
    with pytest.raises(TraceError, match="at least one request"):
        Simulation(options(tmp_path / "t"))
    with pytest.raises(ValueError, match="a speed above zero"):
        LinkSpeed(0)
    (tmp_path / "t").write_text('{"session":0,"timestamp":0,"input_length":32,"output_length":1,"block_ids":[[0,2]]}')
    with pytest.raises(ScaleError):
        Simulation(options(tmp_path / "t", scale=Scale(8))).run()
