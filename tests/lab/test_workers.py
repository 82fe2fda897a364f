"""A sweep that is killed: none of its processes is left, and it goes on to the same figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagehold.lab.cells import read, run_all
from stagehold.lab.sweeps import sweep

SECONDS = 120
SMALL = {"trace": ["miniswe"], "requests": [12], "users": [6], "device_pages": [300], "seed": [1, 2, 3]}
PROGRAM = """
import sys
from pathlib import Path
from stagehold.lab.cells import run_all
from stagehold.lab.sweeps import sweep
if __name__ == "__main__":
    minutes = sweep({{"device_gb": [60.0, 80.0, 100.0]}}).cells
    run_all([*sweep({small!r}).cells, *minutes], Path(sys.argv[1]), 2)
"""


def gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def until(what: str, met: object) -> None:
    end = time.monotonic() + SECONDS
    while not met():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_leaves_nothing_and_goes_on(tmp_path: Path, number: int) -> None:
    """Whichever way it ended, while cells were under way of which each takes minutes."""
    program, out = tmp_path / "program.py", tmp_path / "cut.jsonl"
    program.write_text(PROGRAM.format(small=SMALL))
    command = [sys.executable, "-P", str(program), str(out)]
    child = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    until("small cells", lambda: child.poll() is not None or (out.exists() and out.read_bytes().count(b"\n") >= 2))
    child.send_signal(number)
    assert 0 != child.wait(SECONDS)
    until("its processes have ended", lambda: gone(child.pid))
    cells = sweep(SMALL).cells

    assert 2 <= len(read(out)) <= 3
    assert run_all(cells, out) == run_all(cells, tmp_path / "whole.jsonl")
