"""Ranks that are processes: one all-reduce of `torch.distributed` a tick, and a roll call when that fails.

Owns a process group of its own, beside whatever groups the server has, and the only wall-clock limit there is. The
store of torch (a `TCPStore` or a `FileStore` that every rank reaches) is used when the group forms and when it falls
apart, never in a tick.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stagehold.lifecycle.errors import Misuse, RankLost
from stagehold.lifecycle.ranks.group import Facts

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store

SETTLE_SHARE = 0.25
"""Share of the timeout that is kept for finding out who is missing, after a collective has failed."""

SETTLE_MOST_SECONDS = 5.0
"""The most of it: the ranks that are left fail within moments of each other, since each lets go of its links."""

MOST_SENT = 64
"""Messages from rank to rank that may be on their way: more than any pipeline is deep."""

LOOK_SECONDS = 0.02
"""How often the roll is looked at."""


class MeetingPlace:
    """Serves, from this process, the store at which the ranks of one group meet; `port` says where.

    A process that outlives the ranks is the best place: where a rank serves it, the roll goes with that rank.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._store = TCPStore(host, port, is_master=True, wait_for_workers=False)
        self.port: int = self._store.port


class TorchGroup:
    """Rank `rank` of `size` processes that share scheduling.

    `store` is a `torch.distributed.Store` that all of them reach; `host_rank` is the rank whose process serves it, if
    one does: with that rank the store is gone, too. `timeout_seconds` bounds every wait (`group_timeout_seconds` of
    the limits). `backend` is "gloo" or "nccl"; facts lie in host memory, so that gloo suits servers with GPUs, too, and
    with nccl each exchange goes through `device`. `exchanges` counts the all-reduces that have been made.

    Raises `RankLost`, naming who did not come, where the group does not form in time.
    """

    staged = False

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout_seconds: float = 60.0,
        backend: str = "gloo",
        device: str = "cuda",
        host_rank: int | None = None,
        name: str = "stagehold",
    ) -> None:
        import torch
        from torch.distributed.distributed_c10d import AllreduceOptions, PrefixStore, ReduceOp

        if not 0 <= rank < size:
            raise Misuse(f"rank {rank} of {size}: expected 0 to {size - 1}")
        if backend not in ("gloo", "nccl"):
            raise Misuse(f"backend {backend!r}: expected gloo or nccl")
        self.rank = rank
        self.size = size
        self.exchanges = 0
        self._settle_seconds = min(SETTLE_MOST_SECONDS, SETTLE_SHARE * timeout_seconds)
        self._host_rank = host_rank
        self._store: Any = PrefixStore(name, store)
        self._limit = timedelta(seconds=timeout_seconds - self._settle_seconds)
        self._device = torch.device("cpu" if backend == "gloo" else device)
        self._least: Any = AllreduceOptions()
        self._least.reduceOp = ReduceOp(ReduceOp.MIN)
        self._buffer: torch.Tensor = torch.empty(0, dtype=torch.int64)
        self._host: Facts = self._buffer.numpy()
        self._sent: deque[tuple[Any, Any]] = deque()  # what is on its way, and the memory that it lies in
        self._come("joined", f"the group of {size} ranks did not form")
        self._links: Any = self._link(backend)

    def _link(self, backend: str) -> Any:
        from torch.distributed import distributed_c10d as dist

        links = dist.PrefixStore("links", self._store)
        if backend == "gloo":
            return dist.ProcessGroupGloo(links, self.rank, self.size, self._limit)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._limit  # noqa: SLF001 - the only way in which torch lets it be set
        return dist.ProcessGroupNCCL(links, self.rank, self.size, options)

    @classmethod
    def join(cls, host: str, port: int, rank: int, size: int, **options: Any) -> Self:
        """A group whose ranks meet at a `MeetingPlace`; `options` are the constructor's."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        limit = timedelta(seconds=options.get("timeout_seconds", 60.0))
        try:
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
        except RuntimeError as error:
            raise RankLost(f"rank {rank}: nobody serves a meeting place at {host}:{port} ({_short(error)})") from error
        return cls(store, rank, size, **options)

    # The tick

    def exchange(self, facts: Facts) -> Facts:
        """See `Group.exchange`."""
        if len(facts) != len(self._host):
            self._agree_on_length(facts)
        self._host[:] = facts
        begin = time.monotonic()
        try:
            return self._reduced()
        except RuntimeError as error:
            raise self._lost(f"exchange {self.exchanges + 1}", begin, error) from error

    def _reduced(self) -> Facts:
        on_host = self._device.type == "cpu"
        given = self._buffer if on_host else self._buffer.to(self._device)
        self._links.allreduce([given], self._least).wait()
        self.exchanges += 1
        agreed: Facts = self._host.copy() if on_host else given.cpu().numpy()
        return agreed

    def _agree_on_length(self, facts: Facts) -> None:
        """Before the first exchange: a collective over vectors of different lengths would hang, or worse."""
        import torch

        if self.exchanges:
            raise Misuse(f"exchange: {len(facts)} facts after {len(self._host)}; a group is for engines of one window")
        lengths = self._come("length", "the ranks did not come to their first exchange", str(len(facts)))
        if len(set(lengths)) > 1:
            told = ", ".join(f"rank {rank} {length}" for rank, length in enumerate(lengths))
            raise Misuse(f"exchange: expected facts of one length from all ranks, got {told}; "
                         "is operation_window the same?")  # fmt: skip
        self._buffer = torch.empty(len(facts), dtype=torch.int64)
        self._host = self._buffer.numpy()

    # After a mismatch

    def gather(self, message: bytes) -> list[bytes]:
        """See `Group.gather`."""
        begin = time.monotonic()
        try:
            lengths = [int(length[0]) for length in self._gathered(np.array([len(message)], dtype=np.int64))]
            padded = np.zeros(max(lengths), dtype=np.uint8)
            padded[: len(message)] = np.frombuffer(message, dtype=np.uint8)
            told = self._gathered(padded)
        except RuntimeError as error:
            raise self._lost("the gathering after a mismatch", begin, error) from error
        return [one[:length].tobytes() for one, length in zip(told, lengths, strict=True)]

    def _gathered(self, mine: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        import torch

        given = torch.from_numpy(mine).to(self._device)
        heard = [torch.empty_like(given) for _ in range(self.size)]
        self._links.allgather([heard], [given]).wait()
        return [one.cpu().numpy() for one in heard]

    # From rank to rank

    def send(self, to: int, facts: Facts) -> None:
        """See `pipeline.Wires.send`; gloo only. Waits for the oldest where more than `MOST_SENT` are on their way."""
        import torch

        given = torch.from_numpy(facts.copy())
        begin = time.monotonic()
        try:
            self._sent.append((self._links.send([given], to, 0), given))
            while len(self._sent) > MOST_SENT:
                self._sent.popleft()[0].wait()
        except RuntimeError as error:
            raise self._lost(f"message {len(self._sent)} to rank {to}", begin, error) from error

    def receive(self, sender: int, length: int) -> Facts:
        """See `pipeline.Wires.receive`; gloo only."""
        import torch

        given = torch.empty(length, dtype=torch.int64)
        begin = time.monotonic()
        try:
            self._links.recv([given], sender, 0).wait()
        except RuntimeError as error:
            raise self._lost(f"a message from rank {sender}", begin, error) from error
        heard: Facts = given.numpy()
        return heard

    # Who is there

    def _come(self, roll: str, otherwise: str, word: str = "") -> list[str]:
        """Enter this rank in a roll and wait for the others; their words, or `RankLost` naming who is missing."""
        self._store.set(f"{roll}/{self.rank}", word)
        deadline = time.monotonic() + self._limit.total_seconds()
        missing = self._missing(roll, deadline)
        if missing:
            names = ", ".join(f"rank {rank}" for rank in missing)
            seconds = self._limit.total_seconds()
            raise RankLost(f"rank {self.rank}: {otherwise}: {names} did not come within {seconds:g} s", missing)
        return [self._store.get(f"{roll}/{rank}").decode() for rank in range(self.size)]

    def _missing(self, roll: str, deadline: float) -> tuple[int, ...]:
        """Ranks that have not entered a roll by the deadline, ascending."""
        missing = list(range(self.size))
        while True:
            missing = [rank for rank in missing if not self._store.check([f"{roll}/{rank}"])]
            if not missing or time.monotonic() >= deadline:
                return tuple(missing)
            time.sleep(LOOK_SECONDS)

    def _lost(self, where: str, begin: float, error: RuntimeError) -> RankLost:
        """Let go of the links, so that nobody waits for this rank, and find out which ranks do not answer.

        One roll, wherever it was lost: a rank that still ended an exchange fails in the one after it.
        """
        self.close()
        try:
            self._store.set(f"here/{self.rank}", "")
            missing = self._missing("here", time.monotonic() + self._settle_seconds)
        except RuntimeError:  # what serves the roll has gone itself
            missing = () if self._host_rank is None else (self._host_rank,)
        said = f"given up after {time.monotonic() - begin:.1f} s: {_short(error)}"
        if missing:
            names = ", ".join(f"rank {rank}" for rank in missing)
            return RankLost(f"rank {self.rank}: {names} of {self.size} did not answer in {where}; {said}", missing)
        return RankLost(f"rank {self.rank}: the other ranks have given up on {where}, or cannot be reached; {said}")

    def close(self) -> None:
        """Let go of the links. Idempotent; nothing can be exchanged afterwards."""
        links, self._links = self._links, _Gone()
        for end in ("abort", "shutdown"):
            with suppress(RuntimeError):
                getattr(links, end, _nothing)()


def _short(error: RuntimeError) -> str:
    """What a backend says, without the place in its sources and its advice."""
    first = str(error).partition("\n")[0]
    return first[first.find("] ") + 2 :].partition(". ")[0] if first.startswith("[") else first


def _nothing() -> None:
    """What backends without such a call do."""


class _Gone:
    """Links after their end: every collective fails at once."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: the links of this group are closed")
