"""K100: a server spent minutes on faulting and locking host memory at its start, and said nothing.

Here the doctor measures both on a piece and says before the start how long all of it will take; the start takes what
was told, byte for byte, in the one place where tensors are made. A start without tensors takes none of it.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from stagehold.operate.doctor import speed

MIB = 1 << 20
PROGRAM = """
import time
import torch
from stagehold import Engine, EngineConfig
from stagehold.operate.derived import device_bytes, host_bytes

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

for parts, piece in (1, 64), (2, 128 << 10), (0, 0):  # the first loads what all need
    config = EngineConfig(
        device_pages=16, staging_pages=256, largest_request_tokens=512, parts=parts, page_part_bytes=piece
    )
    before = resident()
    engine = Engine(config)
    print(resident() - before, host_bytes(config) + device_bytes(config))
    engine.close()
    del engine
"""


@pytest.fixture(scope="module")
def taken() -> list[tuple[int, int]]:
    """Bytes that a start makes resident, and those that are told before it: with tensors, and without."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    figures = [line.split() for line in done.stdout.splitlines()]
    return [(int(grown), int(told)) for grown, told in figures[1:]]


def test_the_time_of_a_start_is_told_before_it():
    """By the rate at which memory was touched here, a moment ago."""
    (line,) = (check for check in speed.look(8 << 30) if check.name == "host memory")
    found = re.search(
        r"touched at ([\d.]+) ([MG])iB a second, .*8 GiB of staging take about ([\d.]+) s at start", line.detail
    )
    assert found, line.detail
    rate = float(found[1]) * (MIB if found[2] == "M" else 1 << 30)
    assert abs((8 << 30) / rate - float(found[3])) < 0.2 + 0.01 * float(found[3])


def test_a_start_takes_what_was_told(taken):
    """Neither twice as much nor a part of it later, page by page, while requests wait."""
    grown, told = taken[0]
    assert 68 * MIB == told
    assert 0.9 * told < grown < 1.2 * told + 8 * MIB


def test_a_start_without_tensors_takes_next_to_nothing(taken):
    """Books only."""
    grown, told = taken[1]
    assert 0 == told
    assert grown < 8 * MIB
