"""A replay by several ranks, each of which holds its share of every page: in turns in this process, or as processes.

Owns the ranks' lives: how they start, meet and end, and what is said when one of them does not. All of them read the
same trace, and what they have in common is held against each other: the digest of every tick.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from stagehold import AuditLog, Engine, Group, MeetingPlace, RankCoordinates, TorchGroup
from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.page import Layout as ObjectLayout
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays
from stagehold.cache.stores.workers import WorkerStore
from stagehold.lab.replay import OnProgress, Replay, ReplayOptions, store_folder
from stagehold.lab.report import ReplayReport
from stagehold.serving.pattern import WORD, Layout, Pattern
from stagehold.serving.runner import PatternRunner

HOST = "127.0.0.1"

RANK_SEEDS = 7919
"""Seeds of two ranks lie this far apart, so that no two ranks of any two runs draw the same delays."""

ENDS_WITHIN_SECONDS = 5.0
"""What a process has after its last word, or after it was told to end."""


class RanksFailed(RuntimeError):
    """Not every rank came to its end; what each of them said last."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """What one rank brings home: its report, the digest of each of its blocks, and how often it exchanged facts."""

    report: ReplayReport
    digests: tuple[bytes, ...]
    exchanges: int


@dataclass(frozen=True, slots=True)
class RanksReport:
    """What all ranks found. The tokens are rank 0's, the bytes are everybody's."""

    results: tuple[RankResult, ...]
    in_process: bool
    of_all: ReplayReport = field(init=False)

    def __post_init__(self) -> None:
        reports = [result.report for result in self.results]
        summed = {
            name: sum(getattr(report, name) for report in reports)
            for name in ("compared_bytes", "wrong_bytes", "phantom_hit_tokens", "violations")
        }
        object.__setattr__(self, "of_all", replace(reports[0], **summed))

    @property
    def differing_ticks(self) -> int:
        """Blocks that are not the same on every rank, those that only some of them have among them."""
        most = max(len(result.digests) for result in self.results)
        rows = [{result.digests[i : i + 1] for result in self.results} for i in range(most)]
        return sum(len(row) > 1 for row in rows)

    @property
    def exchanges(self) -> int:
        """Collectives that each rank took part in."""
        return self.results[0].exchanges

    def as_json(self) -> dict[str, Any]:
        """The report's fields, then those of the group."""
        return {
            **self.of_all.as_json(),
            "ranks": len(self.results),
            "in_process": self.in_process,
            "exchanges": self.exchanges,
            "differing_ticks": self.differing_ticks,
            "audit_logs": [result.report.audit_log for result in self.results],
        }

    def faults(self) -> list[str]:
        """What must not be in any run, each in words."""
        found = self.of_all.faults()
        if self.differing_ticks:
            found.append(f"{self.differing_ticks:,} ticks that the ranks recorded differently")
        counts = {result.exchanges for result in self.results}
        if counts != {self.of_all.ticks}:
            found.append(f"{sorted(counts)} exchanges of the ranks in {self.of_all.ticks:,} ticks")
        return found


class ShareRunner(PatternRunner):
    """A model's share on one rank: its bytes are no other rank's, so that a page of another share is a wrong one."""

    def __init__(self, layout: Layout, pool: Any, share: str) -> None:
        super().__init__(layout, pool)
        self._share = share
        self._shares: dict[Any, Pattern] = {}

    def _pattern(self, namespace: Any) -> Pattern:
        if namespace not in self._shares:
            self._shares[namespace] = Pattern(self.layout, f"{namespace!r} {self._share}")
        return self._shares[namespace]


class RankReplay(Replay):
    """The replay of one rank: its share of the heads, its own store objects, delays and audit log."""

    def __init__(self, options: ReplayOptions, group: Group, progress: OnProgress | None = None) -> None:
        self.group = group
        self.digests: list[bytes] = []
        audit = options.audit.with_name(f"{options.audit.stem}.rank{group.rank}{options.audit.suffix}")
        super().__init__(replace(options, audit=audit), progress)

    def new_layout(self) -> Layout:
        """See `Replay.new_layout`: the heads are dealt to the ranks, whole words to each."""
        whole = super().new_layout()
        return replace(whole, token_part_bytes=max(1, whole.token_part_bytes // WORD // self.group.size) * WORD)

    def engine_options(self, log: AuditLog) -> dict[str, Any]:
        """See `Replay.engine_options`."""

        def sink(block: Any) -> None:
            self.digests.append(block.digest)
            log.block(block)

        at = RankCoordinates(self.group.rank, self.group.size)
        return {**super().engine_options(log), "sink": sink, "group": self.group, "at": at}

    def open_store(self, folder: Path) -> Store:
        """See `Replay.open_store`: one folder for all ranks, in which every object has its owner in its name."""
        layout = ObjectLayout(tensor_rank=self.group.rank, tensor_size=self.group.size)
        return self.delayed(WorkerStore(FileStore(folder, layout=layout)))

    def delayed(self, store: WorkerStore) -> Store:
        """The store at this rank's speed."""
        ticks = (1, self.options.store_delay)
        seed = self.options.seed + RANK_SEEDS * self.group.rank
        return DelayedStore(store, seed, delays=Delays(exists=ticks, get=ticks, put=ticks))

    def new_runner(self, engine: Engine) -> PatternRunner:
        """See `Replay.new_runner`."""
        assert engine.device_bytes is not None, "the replay attaches tensors"
        share = f"{self.group.rank}/{self.group.size}"
        return ShareRunner(self.layout, engine.device_bytes.tensor, share)

    def result(self) -> RankResult:
        """Replay, and say what came of it."""
        report = self.run()
        return RankResult(report, tuple(self.digests), 0)


class Ranks:
    """A replay by `size` ranks; `plan` is rank 0's, for its sizes. `timeout_seconds` is the group's."""

    def __init__(
        self, options: ReplayOptions, size: int, *, in_process: bool = False, timeout_seconds: float = 60.0
    ) -> None:
        self.options = options
        self.size = size
        self.in_process = in_process
        self.timeout_seconds = timeout_seconds

    def run(self, progress: OnProgress | None = None, started: Any = None) -> RanksReport:
        """Replay on all ranks. `started(rank, pid)` is told of each process. Raises `RanksFailed`."""
        with store_folder(self.options) as folder:
            options = replace(self.options, store_folder=folder)
            results = self._in_turns(options, progress) if self.in_process else self._apart(options, progress, started)
        return RanksReport(tuple(results), self.in_process)

    def _in_turns(self, options: ReplayOptions, progress: OnProgress | None) -> list[RankResult]:
        from stagehold.testing.ranks import in_turns, values

        def program(member: Any) -> RankResult:
            return RankReplay(options, member, progress if member.rank == 0 else None).result()

        group, outcomes = in_turns(self.size, options.seed, program)
        return [replace(result, exchanges=group.exchanges) for result in values(outcomes)]

    def _apart(self, options: ReplayOptions, progress: OnProgress | None, started: Any) -> list[RankResult]:
        place = MeetingPlace(HOST)
        task = _Task(self.size, place.port, options, self.timeout_seconds)
        with _processes(task) as (processes, pipes):
            for rank, process in enumerate(processes):
                if started is not None:
                    started(rank, process.pid)
            words = _listen(pipes, progress, self.timeout_seconds + ENDS_WITHIN_SECONDS)
            for process in processes:
                process.join(ENDS_WITHIN_SECONDS)
            failed = [rank for rank, word in enumerate(words) if not isinstance(word, RankResult)]
            if failed:
                raise RanksFailed("; ".join(_last_words(rank, words[rank], processes[rank]) for rank in failed))
        return [word for word in words if isinstance(word, RankResult)]


@dataclass(frozen=True, slots=True)
class _Task:
    """What every process of a replay is told."""

    size: int
    port: int
    options: ReplayOptions
    timeout_seconds: float


@contextmanager
def _processes(task: _Task) -> Iterator[tuple[list[BaseProcess], list[Connection]]]:
    """Start a process for each rank; whatever happens, none of them is left behind."""
    context = get_context("spawn")
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    with _share_of_cores(task.size):
        try:
            for rank in range(task.size):
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_be_rank, args=(rank, task, theirs), name=f"rank {rank}", daemon=True
                )
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
            yield processes, pipes
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
            for process in processes:
                process.join(ENDS_WITHIN_SECONDS)
                if process.is_alive():  # a process that was stopped hears nothing else
                    process.kill()
                process.join()
            for pipe in pipes:
                pipe.close()


@contextmanager
def _share_of_cores(size: int) -> Iterator[None]:
    """Let the threads of all ranks together be no more than there are cores, unless the user has said otherwise."""
    name = "OMP_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(max(1, (os.cpu_count() or 1) // size))
    try:
        yield
    finally:
        del os.environ[name]


def _be_rank(rank: int, task: _Task, pipe: Connection) -> None:
    """The life of one rank's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started the ranks ends them
    try:
        group = TorchGroup.join(HOST, task.port, rank, task.size, timeout_seconds=task.timeout_seconds)
        replay = RankReplay(task.options, group, (lambda *told: pipe.send(told)) if rank == 0 else None)
        result = replay.result()
        group.close()
        pipe.send(replace(result, exchanges=group.exchanges))
    except Exception as error:  # noqa: BLE001 - told to whoever started the ranks
        pipe.send(f"{type(error).__name__}: {error}")


def _listen(pipes: Sequence[Connection], progress: OnProgress | None, patience: float) -> list[RankResult | str | None]:
    """What each rank says last; None of one that ended without a word, or is silent `patience` after another failed."""
    words: list[RankResult | str | None] = [None] * len(pipes)
    open_pipes: list[Any] = list(pipes)
    until: float | None = None
    while open_pipes:
        ready = wait(open_pipes, None if until is None else max(0.0, until - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            assert isinstance(pipe, Connection)
            try:
                said = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                if not isinstance(words[pipes.index(pipe)], RankResult):
                    until = until or time.monotonic() + patience
                continue
            if isinstance(said, tuple):
                if progress is not None:
                    progress(*said)
            else:
                words[pipes.index(pipe)] = said
    return words


def _last_words(rank: int, word: RankResult | str | None, process: BaseProcess) -> str:
    if isinstance(word, str):
        return f"rank {rank} ended with {word}"
    if process.exitcode is None:
        return f"rank {rank} did not answer any more"
    code = process.exitcode
    how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
    return f"rank {rank} {how}"
