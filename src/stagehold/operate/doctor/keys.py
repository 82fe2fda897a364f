"""Whether this machine names pages as every other one does: a fixed vector, here and under other hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from stagehold.cache import keys
from stagehold.cache.errors import InvariantBroken
from stagehold.cache.keys import KEY_SCHEMA
from stagehold.operate.doctor.check import Check

SEEDS = ("0", "1", "random")
PROGRAM = "from stagehold.cache.keys import self_test; self_test()"
FIX = (
    "something replaces the keys (a sitecustomize, a patched package, another version on sys.path): reinstall, and "
    "start every rank from the same environment, or ranks will not find each other's pages"
)


def look() -> Iterator[Check]:
    """In this process, and in a new one for each seed of Python's own hash."""
    try:
        keys.self_test()
    except InvariantBroken as error:
        yield Check("page keys", ok=False, detail=f"schema {KEY_SCHEMA}: {error}", fix=FIX)
        return
    yield Check("page keys", ok=True, detail=f"schema {KEY_SCHEMA}, the fixed vector has its digests")
    yield _seeds()


def _seeds() -> Check:
    begun = {seed: _begin(seed) for seed in SEEDS}  # side by side
    ended = {seed: process.communicate(timeout=60)[1] for seed, process in begun.items()}
    for seed, process in begun.items():
        if process.returncode:
            last = ended[seed].strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            return Check("hash seed", ok=False, detail=f"with PYTHONHASHSEED={seed}: {last[0]}", fix=FIX)
    return Check("hash seed", ok=True, detail=f"the same keys with PYTHONHASHSEED={', '.join(SEEDS)}")


def _begin(seed: str) -> subprocess.Popen[str]:
    environment, command = {**os.environ, "PYTHONHASHSEED": seed}, [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
