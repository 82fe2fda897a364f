"""The sizes of a replay follow from its requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagehold.lab.expand import Scale
from stagehold.lab.traces import TraceError, shipped_trace
from stagehold.lab.workload import Workload, load_workload


def shipped(requests: int) -> Workload:
    return load_workload(shipped_trace(), requests=requests, scale=Scale(16), page_size=16)


@pytest.mark.parametrize("requests", [100, 500])
def test_the_pool_holds_at_most_a_quarter_of_the_working_set(requests: int) -> None:
    """The sizes of the main job make evictions certain."""
    workload = shipped(requests)

    assert workload.device_pages <= workload.working_set_pages / 4
    assert workload.device_pages * 16 > workload.largest_request_tokens


def test_a_small_replay_can_still_run_its_largest_request() -> None:
    """With few requests a quarter is too little, and the largest request decides."""
    workload = shipped(3)

    assert workload.device_pages == -(-workload.largest_request_tokens // 16) + 1


def test_the_figures_of_the_main_job() -> None:
    """500 requests: tokens counted from the trace itself, lengths divided by 32 and rounded up."""
    workload = shipped(500)

    assert 500 == len(workload.requests)
    assert 222_898 == workload.prompt_tokens
    assert 36_448 == sum(workload.ideal_hits)


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    """Nothing to replay is said in so many words."""
    path = tmp_path / "t.jsonl"
    path.write_text("\n")

    with pytest.raises(TraceError, match="expected at least one request, found none"):
        load_workload(path, requests=5, scale=Scale(16), page_size=16)


def test_blocks_that_a_scale_would_cut_are_refused(tmp_path: Path) -> None:
    """The file is named, and a scale that works."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"session":0,"timestamp":0,"input_length":32,"output_length":1,"block_ids":[[0,2]]}\n')

    with pytest.raises(TraceError, match=f"{path}: expected another scale, found blocks of 16 tokens cannot"):
        load_workload(path, requests=5, scale=Scale(16), page_size=16)
    assert 32 == load_workload(path, requests=5, scale=Scale(512), page_size=16).prompt_tokens
