"""Passes of the demo as runs of the report page: sums, ranks of times, the slowest first, and what would be ideal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stagehold.lab.demo.prompts import Kind, Prompt
from stagehold.lab.demo.recorder import Recorder
from stagehold.lab.demo.report import DemoReport
from stagehold.lab.demo.runs import run_of
from stagehold.lab.expand import Unbounded


def record(rid: str, seconds: float, **more: int) -> dict[str, Any]:
    tokens = {"prompt_tokens": 200, "computed_tokens": 50, "device_hit_tokens": 30, "store_hit_tokens": 120}
    return {"rid": rid, "first_token_seconds": seconds, "ideal_hit_tokens": 160, **tokens, **more}


def test_a_pass_is_a_run() -> None:
    """Tokens add up, times are milliseconds by nearest rank, and the log is named."""
    records = [record(str(n), n / 10) for n in range(1, 21)]
    passes = {"warm": {"records": records, "host_hit_tokens": 64, "retractions": 2}}
    run = run_of(DemoReport("m", False, passes, [], True, 0.0), "warm", Path("w.jsonl"))

    assert "warm" == run.name
    assert (20, 4000, 3200, 600, 2400) == tuple(
        run.number(name)
        for name in ("requests", "prompt_tokens", "ideal_hit_tokens", "device_hit_tokens", "store_hit_tokens")
    )
    assert {"p50": 1000.0, "p90": 1800.0, "p95": 1900.0, "most": 2000.0} == run.waits
    assert ["warm: 20", "warm: 19"] == [row["request"] for row in run.found["slowest"]][:2]
    assert "w.jsonl" == run.found["audit_log"]


def test_what_was_submitted_before_is_what_could_be_hit() -> None:
    """Whole pages of any earlier prompt, whichever pass it came in, and a token left to compute."""
    tokens = np.arange(200, dtype=np.uint32)
    recorder = Recorder(None, lambda: 0.0, Unbounded(64))  # nothing is computed here
    for rid, upto in (("a", 128), ("b", 128), ("c", 200), ("d", 200)):
        recorder.submitted(Prompt(rid, "s", 1, Kind.SHORT, tokens[:upto]), rid)

    assert [0, 64, 128, 192] == [one.ideal_hit_tokens for one in recorder.records.values()]
    assert all("ideal_hit_tokens" in one.as_json() for one in recorder.records.values())
