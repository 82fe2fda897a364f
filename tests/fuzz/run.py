"""Hostile files to every reader for a time: `make fuzz SECONDS=3600 SEED=7 EXAMPLES=2000`.

Each round is a process of its own, under a limit of memory, with the next seed; the first that fails ends it all, and
what it was given is kept. In the suite the same tests run with few examples.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY_BYTES = 16 << 30
"""Of address space, most of which torch reserves and never uses."""


def limited() -> None:
    """In the new process: what a reader asks for beyond this, it does not get."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def round_of(seed: int, examples: int, seconds: float) -> int:
    """The exit status of one round."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", f"--hypothesis-seed={seed}", str(HERE)]
    environment = {**os.environ, "FUZZ_EXAMPLES": str(examples)}
    return subprocess.run(
        command, check=False, cwd=HERE.parents[1], env=environment, preexec_fn=limited, timeout=seconds
    ).returncode


def main() -> int:
    """Rounds until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=1000)
    asked = parser.parse_args()
    end, seed = time.monotonic() + asked.seconds, asked.seed
    while seed == asked.seed or time.monotonic() < end:
        status = round_of(seed, asked.examples, 3600 + asked.seconds)
        if status:
            sys.stderr.write(f"fuzz: `make fuzz SEED={seed} EXAMPLES={asked.examples}` does it again\n")
            return status
        seed += 1
    sys.stdout.write(f"fuzz: seeds {asked.seed} to {seed - 1}, {asked.examples} examples of each kind, nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
