"""A trace replayed by several ranks: as one rank that is as slow as the slowest, whoever is slow when."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from stagehold import Solo
from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.dice import Dice
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays
from stagehold.cache.stores.workers import WorkerStore
from stagehold.lab.expand import Scale
from stagehold.lab.ranks import RANK_SEEDS, RankReplay, Ranks, RanksReport
from stagehold.lab.replay import ReplayOptions
from stagehold.machines.audit_diff import Differs, diff

PROGRAM = [sys.executable, "-c", "from stagehold.cli.main import app; app()", "replay"]
TIMEOUT = 6.0


def options(folder: Path, **changes: Any) -> ReplayOptions:
    """The crowded run of the Makefile, on tokens of few bytes."""
    crowded = {"tenants": 16, "hang_ups": 3.0, "speed": 2, "device_pages": 260, "store_delay": 24}
    return ReplayOptions(**{"audit": folder / "a.jsonl", "token_part_bytes": 32, **crowded, **changes})


class Slowest(Dice):
    """Dice that fall as the highest of several."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self._all = [Dice(seed) for seed in seeds]

    def randint(self, a: int, b: int) -> int:
        return max(one.randint(a, b) for one in self._all)


class AsSlowAsTheSlowest(RankReplay):
    """One rank, each of whose operations takes as long as on the slowest of `size` ranks."""

    size = 1

    def delayed(self, store: WorkerStore) -> Store:
        ticks = (1, self.options.store_delay)
        slow = DelayedStore(store, 0, delays=Delays(exists=ticks, get=ticks, put=ticks))
        slow._random = Slowest([self.options.seed + RANK_SEEDS * rank for rank in range(self.size)])
        return slow


@pytest.mark.parametrize(("size", "block_tokens", "device_pages"), [(2, 16, 260), (4, 4, 80)])
def test_processes_replay_the_trace_as_one_rank_that_is_as_slow_as_the_slowest(
    tmp_path: Path, size: int, block_tokens: int, device_pages: int
) -> None:
    """500 requests: equal digests in every tick, one collective a tick, right bytes on all of them."""
    sizes = {"scale": Scale(block_tokens), "device_pages": device_pages}
    found = Ranks(options(tmp_path, **sizes), size).run()
    kind = type("Kind", (AsSlowAsTheSlowest,), {"size": size})
    alone = kind(options(tmp_path, **sizes, audit=tmp_path / "alone.jsonl"), Solo()).result()

    assert [] == found.faults()
    assert (500, size) == (found.of_all.requests, len(found.results))
    assert found.of_all.store_hit_tokens > 2_000
    assert {alone.digests} == {result.digests for result in found.results}
    assert {found.of_all.ticks} == {result.exchanges for result in found.results}
    logs = [Path(result.report.audit_log) for result in found.results]
    assert 1 == len({log.read_bytes() for log in logs})


def test_ranks_in_turns_do_what_processes_do(tmp_path: Path) -> None:
    """The same digests, over a restart, too; and other seeds give others."""
    few = {"requests": 60, "restart_after": 30}
    turns = Ranks(options(tmp_path, **few), 3, in_process=True).run()
    again = Ranks(options(tmp_path, **few, seed=1), 3, in_process=True).run()

    assert [] == turns.faults() + again.faults()
    assert 2 == turns.of_all.state_entries["attachment.attached"]
    assert turns.results[0].digests != again.results[0].digests
    assert turns.as_json()["exchanges"] == turns.of_all.ticks


def test_ranks_that_recorded_different_ticks_are_a_fault(tmp_path: Path) -> None:
    """Planted in the results: a digest that differs, and an exchange too many."""
    found = Ranks(options(tmp_path, requests=12), 2, in_process=True).run()
    one, other = found.results
    other = replace(other, digests=(*other.digests[:-1], b"other"), exchanges=other.exchanges + 1)
    wrong = RanksReport((one, other), in_process=True)
    assert 1 == wrong.differing_ticks
    assert 2 == len(wrong.faults())


def test_each_rank_has_bytes_of_its_own(tmp_path: Path) -> None:
    """Planted: a model that is another rank's finds wrong bytes in the objects of this one."""

    class Foreign(RankReplay):
        def new_runner(self, engine: Any) -> Any:
            runner = super().new_runner(engine)
            runner._share = "1/2"
            return runner

    store = tmp_path / "store"
    right = RankReplay(options(tmp_path, requests=80, store_folder=store), Solo()).result()
    assert 0 == right.report.wrong_bytes
    assert Foreign(options(tmp_path, requests=80, store_folder=store), Solo()).result().report.wrong_bytes > 0


def replaying(folder: Path, *more: str) -> list[str]:
    crowded = ["--tenants", "16", "--speed", "2", "--scale", "4", "--device-pages", "80", "--store-delay", "24"]
    kept = ["--store-folder", str(folder / "store"), "--audit", str(folder / "a.jsonl")]
    return [*PROGRAM, "--json", "--no-strict", "--ranks", "4", *crowded, *kept, *more]


def processes_of(running: subprocess.Popen[str]) -> dict[int, int]:
    """Rank by rank, the process that it is, as the command says on its error stream."""
    told: dict[int, int] = {}
    for line in running.stderr:
        found = re.fullmatch(r"stagehold: rank (\d) is process (\d+)\n", line)
        assert found, line
        told[int(found[1])] = int(found[2])
        if len(told) == 4:
            break
    return told


def test_a_killed_rank_is_reported_in_time_and_the_next_run_starts_on_its_store(tmp_path: Path) -> None:
    """The three that are left name it; afterwards every byte is right, what the dead rank half wrote is a miss."""
    command = replaying(tmp_path, "--group-timeout", str(TIMEOUT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            victim = processes_of(running)[2]
            deadline = time.monotonic() + 120
            while len(page_files(tmp_path / "store")) < 80 and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(victim, signal.SIGKILL)
            _, said = running.communicate(timeout=120)
        finally:
            running.terminate()
    assert 1 == running.returncode
    assert "rank 2 was ended by signal 9 (SIGKILL)" in said
    for rank in (0, 1, 3):
        told = rf"rank {rank} ended with RankLost: rank {rank}: rank 2 of 4 did not answer in exchange \d+; "
        given_up = re.search(told + r"given up after ([\d.]+) s: ", said)
        assert given_up, said
        assert float(given_up[1]) <= TIMEOUT
    parted = diff(tmp_path / "a.rank0.jsonl", tmp_path / "a.rank1.jsonl")
    assert parted is None or parted.differs is Differs.APART, parted

    again = subprocess.run(replaying(tmp_path, "--requests", "40"), check=True, capture_output=True)
    report = orjson.loads(again.stdout)
    wrong = ("wrong_bytes", "phantom_hit_tokens", "violations", "differing_ticks")
    assert [0] * 4 == [report[name] for name in wrong]
    assert report["store_hit_tokens"] > 0
    assert report["compared_bytes"] > 0


def test_a_stopped_rank_is_reported_in_time_and_ended(tmp_path: Path) -> None:
    """It never answers, never ends by itself and hears no request to end."""
    command = replaying(tmp_path, "--group-timeout", "2")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        victim = processes_of(running)[2]
        try:
            os.kill(victim, signal.SIGSTOP)
            _, said = running.communicate(timeout=100)
            assert not Path(f"/proc/{victim}").exists()
        finally:
            running.terminate()
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    assert (1, True) == (running.returncode, "rank 2 did not answer any more" in said)


def page_files(folder: Path) -> list[Path]:
    """What lies in the store, whoever wrote it."""
    return [path for path in folder.rglob("*") if path.is_file()]
