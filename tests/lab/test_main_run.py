"""The run that `make run` does: every state that its races are for is reached, with right bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import orjson

ROOT = Path(__file__).parents[2]
STATES = ["lookup", "staged", "anchor_locked", "anchor_lost", "covered", "retry", "capped", "committed", "aborted"]


def variable(name: str) -> str:
    """A variable of the Makefile, as it is written there."""
    found = re.search(rf"^{name} \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"the Makefile sets no {name}"
    return found[1]


def test_the_crowded_run_reaches_every_state_of_a_request_with_right_bytes(tmp_path: Path) -> None:
    """The Makefile's own options, 500 requests."""
    options = ["--requests", variable("REQUESTS"), *variable("RACES").split(), "--audit", str(tmp_path / "a.jsonl")]
    program = [sys.executable, "-c", "from stagehold.cli.main import app; app()", "replay", "--json", *options]
    done = subprocess.run(program, check=True, capture_output=True)
    report = orjson.loads(done.stdout)

    assert 500 == report["requests"]
    assert [] == [state for state in STATES if not report["state_entries"].get(f"request.{state}")]
    assert (0, 0, 0) == (report["violations"], report["wrong_bytes"], report["phantom_hit_tokens"])
    assert report["max_retries"] <= 8
    assert report["compared_bytes"] >= 8192 * (report["device_hit_tokens"] + report["store_hit_tokens"])
