"""Ranks that are processes: what they agree on, and what is said of one that dies, stalls or stays away."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from stagehold import MeetingPlace, Misuse, RankLost, TorchGroup

TIMEOUT = 3.0

PROGRAM = """
import json, os, sys, time
import numpy as np
import torch  # before any time is taken: the first group would load it
from stagehold import StageholdError, TorchGroup, staged
from stagehold.testing.hand import Hand

rank, size, port, act = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


class Counted:
    def __init__(self, inner):
        self.inner, self.calls = inner, []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self.inner, name)


def serve(group, whole=None):
    group._links = counted = Counted(group._links)
    hand = Hand(engine_options={"group": whole or group})
    handles = []
    for number in range(60):
        tokens = hand.prompt(8, number % 5 + 1)
        hand.put(tokens, 0, 8 - rank)
        handles.append(hand.arrive(f"r{number}", tokens))
        hand.tick()
        for handle in list(handles):
            if getattr(hand.visit(handle), "admitted", False):
                hand.compute(handle)
                hand.engine.finish(handle)
                handles.remove(handle)
        hand.core.tree.evict(hand.core.tree.evictable // 2)
    stats = hand.engine.stats()
    told = {"ticks": hand.now, "calls": counted.calls, "digest": hand.engine.digest().hex(), "spliced": stats.spliced}
    hand.engine.close()
    group._links = counted.inner
    return told


def last(group):
    if act in ("kill", "stall", "apart") and rank == 2:
        print("ready", flush=True)
        sys.stdin.readline()
    if act == "apart" and rank == 1:
        group.gather(b"")
    group.exchange(np.arange(20))
    return {}


begin = time.monotonic()
try:
    group = TorchGroup.join("127.0.0.1", port, rank, size, timeout_seconds=TIMEOUT)
    for _ in range(20):
        agreed = group.exchange(np.arange(20) + rank)
    assert agreed.tolist() == list(range(20)), agreed
    heard = group.gather(b"x" * (100 * rank + 1))
    assert [len(one) for one in heard] == [100 * other + 1 for other in range(size)]
    begin = time.monotonic()
    if act == "serve":
        group.close()
        group = TorchGroup.join("127.0.0.1", port, rank, size, timeout_seconds=TIMEOUT, name="serving")
        told = serve(group)
    elif act == "stages":
        stage, place = divmod(rank, 2)
        own = TorchGroup.join("127.0.0.1", port, place, 2, timeout_seconds=TIMEOUT, name=f"stage {stage}")
        told = serve(own, staged(own, group, stage, stages=2, lag=3))
        own.close()
    elif act == "window":
        other = TorchGroup.join("127.0.0.1", port, rank, size, timeout_seconds=TIMEOUT, name="windows")
        other.exchange(np.arange(20 + rank))
    else:
        told = last(group)
    group.close()
except StageholdError as error:
    told = {"error": type(error).__name__, "ranks": list(getattr(error, "ranks", ())), "said": str(error)}
told["seconds"] = time.monotonic() - begin
print(json.dumps(told), flush=True)
""".replace("TIMEOUT", str(TIMEOUT))


class Ranks:
    """`size` processes, of which only `coming` start."""

    def __init__(self, size: int, act: str, coming: int | None = None) -> None:
        self.place = MeetingPlace()
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(rank), str(size), str(self.place.port), act],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(size if coming is None else coming)
        ]

    def said(self, rank: int) -> dict:
        """What a rank has said last."""
        out, _ = self.processes[rank].communicate(timeout=60)
        return json.loads(out.splitlines()[-1])

    def until_ready(self, rank: int) -> None:
        """Wait until it has said that it is."""
        assert "ready\n" == self.processes[rank].stdout.readline()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def ranks():
    made: list[Ranks] = []

    def start(*args, **kwargs) -> Ranks:
        made.append(Ranks(*args, **kwargs))
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_engines_in_processes_make_one_collective_a_tick(ranks) -> None:
    """All-reduces and nothing else, as many as ticks; the shortest rank's hits, and equal digests."""
    started = ranks(3, "serve")
    told = [started.said(rank) for rank in range(3)]
    for one in told:
        assert ["allreduce"] * one["ticks"] == one["calls"]
    assert 1 == len({one["digest"] for one in told})
    assert told[0]["spliced"] > 0


def test_stages_in_processes_make_one_collective_a_tick_each_and_record_the_same(ranks) -> None:
    """Two stages of two ranks; what passes between the stages is sent, not reduced."""
    started = ranks(4, "stages")
    told = [started.said(rank) for rank in range(4)]
    for one in told:
        assert ["allreduce"] * one["ticks"] == one["calls"]
    assert 1 == len({one["digest"] for one in told})
    assert told[0]["spliced"] > 0


def test_a_rank_that_is_killed_is_named_by_the_others_in_time(ranks) -> None:
    """Each of the three that are left ends its exchange within the timeout."""
    started = ranks(4, "kill")
    started.until_ready(2)
    time.sleep(0.5)  # the others are in the exchange by now
    started.processes[2].kill()
    for rank in (0, 1, 3):
        told = started.said(rank)
        assert ("RankLost", [2]) == (told["error"], told["ranks"])
        assert f"rank {rank}: rank 2 of 4 did not answer in exchange 21; given up after " in told["said"]
        assert told["seconds"] < TIMEOUT + 1


def test_ranks_that_fail_in_different_places_name_the_same_one(ranks) -> None:
    """A rank that got its answer before the links broke finds out in its next exchange."""
    started = ranks(3, "apart")
    started.until_ready(2)
    started.processes[2].kill()
    for rank, where in enumerate(("exchange 21", "the gathering after a mismatch")):
        told = started.said(rank)
        assert ("RankLost", [2]) == (told["error"], told["ranks"])
        assert f"rank 2 of 3 did not answer in {where}; " in told["said"]


def test_a_rank_that_stalls_is_named_and_finds_that_it_was_given_up(ranks) -> None:
    """Nobody waits longer than the timeout; when it comes at last, it is told so."""
    started = ranks(3, "stall")
    started.until_ready(2)
    for rank in (0, 1):
        told = started.said(rank)
        assert ("RankLost", [2]) == (told["error"], told["ranks"])
        assert told["seconds"] < TIMEOUT + 1
    started.processes[2].stdin.write("go\n")
    started.processes[2].stdin.flush()
    late = started.said(2)
    assert ("RankLost", []) == (late["error"], late["ranks"])
    assert "rank 2: the other ranks have given up on exchange 21" in late["said"]


def test_a_rank_that_does_not_come_is_named(ranks) -> None:
    """The group does not form, and says why."""
    told = ranks(3, "serve", coming=2).said(0)
    assert ("RankLost", [2]) == (told["error"], told["ranks"])
    assert "the group of 3 ranks did not form: rank 2 did not come within" in told["said"]
    assert told["seconds"] < TIMEOUT + 1


def test_ranks_of_different_windows_are_refused_before_the_first_collective(ranks) -> None:
    """It would hang, or be worse."""
    started = ranks(2, "window")
    for rank in range(2):
        told = started.said(rank)
        assert "Misuse" == told["error"]
        assert "got rank 0 20, rank 1 21; is operation_window the same?" in told["said"]


def test_nonsense_is_refused() -> None:
    """Before anything is waited for."""
    with pytest.raises(Misuse, match="rank 2 of 2: expected 0 to 1"):
        TorchGroup(object(), 2, 2)
    with pytest.raises(Misuse, match="backend 'mpi': expected gloo or nccl"):
        TorchGroup(object(), 0, 2, backend="mpi")
    with pytest.raises(RankLost, match=r"nobody serves a meeting place at 127\.0\.0\.1:1 "):
        TorchGroup.join("127.0.0.1", 1, 0, 2, timeout_seconds=1)
