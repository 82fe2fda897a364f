"""Sweeps: options as people type them, every combination of their values, and the cells that these make."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stagehold import HostMode
from stagehold.lab.cell_options import OptionError, cell_of, names, value, values
from stagehold.lab.cells import Cell, run_all
from stagehold.lab.sweeps import sweep
from stagehold.lab.traces import Format, TraceError, shipped_trace

SMALL = {"trace": ["miniswe"], "requests": [10], "users": [6], "device_pages": [300], "staging_pages": [200]}


def test_every_combination_is_a_cell() -> None:
    """In the order of the options, the last one fastest; names tell what differs, and nothing else."""
    plan = sweep({**SMALL, "store_gbps": [0.5, 20.0], "mode": ["cache", "buffer_only"]})

    assert ["store_gbps=0.5 mode=cache", "store_gbps=0.5 mode=buffer_only", "store_gbps=20 mode=cache",
            "store_gbps=20 mode=buffer_only"] == plan.names()  # fmt: skip
    assert [(0.5, HostMode.CACHE), (20.0, HostMode.BUFFER_ONLY)] == [
        (cell.store_gbps, cell.mode) for cell in (plan.cells[0], plan.cells[-1])
    ]
    assert {300} == {cell.device_pages for cell in plan.cells}
    assert 4 == len({cell.key() for cell in plan.cells})


def test_options_reach_the_simulation() -> None:
    """A cell's own, those of the engine, its limits, and sizes in GB by the pages of the model."""
    chosen = {"prefetch_policy": "best_effort", "tries": "5", "store_latency_ms": "1-3", "scale": "256",
              "host_gb": "1", "device_gb": "2.5", "model": "qwen2.5-7b", "page_size": "32", "step_ms": "7",
              "prefill_rate": "5000", "format": "mooncake", "store": "false", "mode": "cache",
              "strict": "true"}  # fmt: skip
    cell = cell_of({name: value(name, text) for name, text in chosen.items()})
    options = cell.simulation()
    page_bytes = 32 * 2 * 28 * 4 * 128 * 2

    assert {"prefetch_policy": "best_effort"} == options.settings
    assert 5 == options.limits.tries
    assert (7, 5000) == (options.cost.step_ms, options.cost.prefill_tokens_per_second)
    assert (Format.MOONCAKE, False, True) == (options.trace_format, options.store, options.strict)
    assert ((1, 3), 256, 32) == (options.link.latency_ms, options.scale.block_tokens, options.page_size)
    assert (10**9 // page_bytes, int(2.5e9) // page_bytes) == (cell.staging_pages, cell.device_pages)
    assert Cell(device_pages=0, staging_pages=0) == cell_of({})


def test_any_file_is_a_trace(tmp_path: Path) -> None:
    """By its path, which tells it from those that come with the package."""
    (tmp_path / "t.gz").write_bytes(shipped_trace("miniswe").read_bytes())
    path = str(tmp_path / "t.gz")

    assert (path, tmp_path / "t.gz") == ((cell := cell_of({"trace": value("trace", path)})).trace, cell.path)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("store_gbps", "fast", "--store-gbps fast: expected a valid number"),
        ("store_gbps", "0", "--store-gbps 0: expected greater than or equal to 0.001"),
        ("store_gbps", "nan", "--store-gbps nan: expected"),
        ("mode", "ram", "--mode ram: expected 'cache' or 'buffer_only'"),
        ("policy", "best", "--policy best: expected one of none, "),
        ("trace", "nowhere", "--trace nowhere: expected a file, or one of conversation"),
        ("store_latency_ms", "2-1", "--store-latency-ms 2-1: expected milliseconds such as 1 or 0.5-2"),
        ("prefetch_policy", "now", "--prefetch-policy now: expected 'best_effort'"),
        ("tries", "0", "--tries 0: expected greater than or equal to 1"),
        ("store_gpbs", "1", "--store-gpbs: expected --store-gbps"),
        ("kv_device", "cpu", "--kv-device: expected "),
        ("seed", "1,2,1", "--seed 1,2,1: expected every value once"),
        ("requests", "", "--requests : expected a valid integer"),
        ("seed", "9223372036854775808", "--seed 9223372036854775808: expected a number below 2 to the power of 63"),
        ("wait_cap_ticks", "9" * 30, "expected a number below 2 to the power of 63"),
        ("wait_per_page_ticks", "inf", "--wait-per-page-ticks inf: expected a number below"),
    ],
)
def test_what_an_option_cannot_be_is_told(name: str, text: str, expected: str) -> None:
    """With its name as it is typed, what was found and what was expected."""
    with pytest.raises(OptionError) as caught:
        values(name, text)
    assert expected in str(caught.value)


def test_combinations_that_cannot_be_are_told() -> None:
    """Too many cells, a size twice, a size of no page, a buffer with nothing behind it."""
    for modes in (["buffer_only"], ["cache", "buffer_only"]):
        with pytest.raises(OptionError, match="--store false: expected with --mode cache"):
            sweep({"store": [False], "mode": modes})
    with pytest.raises(OptionError, match="20,000 cells: expected 1 to 10,000"):
        sweep({"seed": range(20_000)})
    with pytest.raises(OptionError, match="--host-gb: expected without --staging-pages"):
        sweep({"host_gb": [1.0], "staging_pages": [5]})
    with pytest.raises(OptionError, match=r"--device-gb 0.001: expected 1 to .* pages of 8,388,608 bytes"):
        sweep({"device_gb": [0.001]})


def test_every_option_has_one_name() -> None:
    """None of the engine's hides one of this module's."""
    assert len(names()) == len(set(names()))


def test_four_workers_and_one_find_the_same(tmp_path: Path) -> None:
    """Figures, digests and order; and again with the same seeds."""
    cells = sweep({**SMALL, "store_latency_ms": [[1.0, 60.0]], "store_gbps": [2.0, 20.0], "seed": [1, 2]}).cells
    one, four, again = (run_all(cells, tmp_path / f"{n}.jsonl", n % 5) for n in (1, 4, 6))

    assert one == four == again
    assert len(one) == len({found["digest"] for found in one})


def test_what_a_worker_cannot_read_is_told_here(tmp_path: Path) -> None:
    """An error that is raised in another process arrives whole."""
    (tmp_path / "t").write_text('{"hash_ids": 3}\n')
    cells = [cell_of({"trace": str(tmp_path / "t"), "seed": seed}) for seed in range(2)]

    with pytest.raises(TraceError, match="t:1: expected"):
        run_all(cells, tmp_path / "out.jsonl", 2)
    error = TraceError(tmp_path, 3, "this", "that")
    assert str(error) == str(pickle.loads(pickle.dumps(error)))
