"""Runs a blocking storage engine on a few threads and makes a `Store` of it.

It owns the threads, the queue and the deadline. It never touches a buffer itself, and never gives one back
while a thread may still write to it: a deadline ends an operation between two pages, not inside one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from stagehold.cache.stores.operations import Kind, Operation, operation
from stagehold.cache.stores.protocol import (
    BlockingStore,
    BlockingTenants,
    BoundedStore,
    Buffer,
    Progress,
    Verdict,
)

AGEING_PAGES = 8
"""How many pages smaller a later operation must be, for each place it arrives later, to overtake. So an
operation
of n pages lets at most n / 8 later ones pass: small before large, and nobody waits for ever."""
ERRORS_KEPT = 16
"""Messages kept for people; the verdicts are what the engine acts on."""


@dataclass(order=True, slots=True)
class _Job:
    """An operation in the queue; `rank` orders it, lower first."""

    rank: int
    arrival: int
    work: Operation = field(compare=False)
    blocking: BlockingStore = field(compare=False)
    give_up_at: float = field(compare=False)


class WorkerStore:
    """A `Store` over a `BlockingStore` with `workers` threads and one deadline (seconds) for each operation.

    The deadline counts from submission. An operation that is still queued then, or between two pages, ends
    with TIMED_OUT for the keys it has not answered; one that is inside a page ends when the engine gives
    the page back, which a `BoundedStore` does in time.
    """

    def __init__(
        self,
        blocking: BlockingStore,
        *,
        workers: int = 2,
        deadline_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if workers < 1 or deadline_seconds <= 0:
            raise ValueError(f"workers={workers}, deadline_seconds={deadline_seconds}: both must be positive")
        self.name = blocking.name
        self.blocking = blocking
        self.errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        lock = threading.Lock()
        self._work_came = threading.Condition(lock)
        self._changed = threading.Condition(lock)
        self._queue: list[_Job] = []
        self._moved: dict[int, Operation] = {}
        self._works: dict[int, Operation] = {}  # in flight, by ticket
        self._arrivals = 0
        self._ended = 0
        self._closing = False
        self._mine = threading.local()
        self._tenants = blocking if isinstance(blocking, BlockingTenants) else None
        self._assigned: tuple[int, bytes] | None = None
        if isinstance(blocking, BoundedStore):
            blocking.bind(self._seconds_left)
        self._threads = [
            threading.Thread(target=self._serve, name=f"store-{self.name}-{index}", daemon=True)
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:  # noqa: ARG002
        """See `Store.exists`; asked before anything else that waits."""
        self._submit(operation(ticket, Kind.EXISTS, keys))

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:  # noqa: ARG002
        """See `Store.get_into`."""
        self._submit(operation(ticket, Kind.GET, keys, buffers))

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:  # noqa: ARG002
        """See `Store.put`."""
        self._submit(operation(ticket, Kind.PUT, keys, buffers))

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the engine keeps tenants apart; all of them share the threads."""
        self._assigned = (ticket, namespace)

    def poll(self, tick: int) -> list[Progress]:  # noqa: ARG002
        """Return what moved since the last poll, in ticket order."""
        with self._changed:
            self._give_up_queued()
            reports = [found for ticket in sorted(self._moved) if (found := self._moved[ticket].report())]
            self._moved.clear()
            self._ended = 0
            for found in reports:
                if found.done:
                    del self._works[found.ticket]
        return reports

    def cut(self, ticket: int, tick: int) -> None:  # noqa: ARG002
        """See `CuttableStore.cut`: what is queued ends at once, what runs ends once it has answered for a page."""
        with self._changed:
            work = self._works.get(ticket)
            if work is None or self._closing:
                return
            work.cut()
            if work.done:
                self._queue = sorted(job for job in self._queue if job.work is not work)
                self._tell(work)

    def wait(self, seconds: float) -> None:
        """Block until an operation ended that was not polled, or until `seconds` are over.

        Single pages wake nobody: a thread switch for each would cost more than reading a small page.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended > 0, timeout=seconds)

    def in_flight(self) -> list[int]:
        """Return the tickets not yet reported done, ascending."""
        with self._changed:
            return sorted(self._works)

    def close(self) -> None:
        """End operations between two pages, join the threads, close the engine. Idempotent.

        A thread that an engine does not give back within the deadline is left behind, with its buffers kept
        alive by its views of them, and the engine is left open; `errors` says so.
        """
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._work_came.notify_all()
        give_up_at = self._clock() + self._deadline_seconds
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - self._clock()))
        self._queue.clear()
        self._moved.clear()
        if any(thread.is_alive() for thread in self._threads):
            self.errors.append("close: a call into the store did not come back within the deadline")
        else:
            self._works.clear()
            self.blocking.close()

    def _seconds_left(self) -> float:
        """How long the operation that the calling thread is in may still take; any other thread has a deadline anew."""
        now = self._clock()
        return float(getattr(self._mine, "give_up_at", now + self._deadline_seconds)) - now

    def _submit(self, work: Operation) -> None:
        blocking = self._part_of(work.ticket)
        with self._changed:
            if self._closing:
                raise RuntimeError(f"store {self.name} is closed")
            assert work.ticket not in self._works, f"ticket {work.ticket} is in flight already"
            self._works[work.ticket] = work
            self._arrivals += 1
            pages = 0 if work.kind is Kind.EXISTS else len(work.keys)
            rank = pages + self._arrivals * AGEING_PAGES
            heappush(self._queue, _Job(rank, self._arrivals, work, blocking, self._clock() + self._deadline_seconds))
            self._work_came.notify()

    def _part_of(self, ticket: int) -> BlockingStore:
        """The part of the tenant that was named a moment ago, for this operation; else the whole."""
        assigned, self._assigned = self._assigned, None
        if self._tenants is None or assigned is None or assigned[0] != ticket:
            return self.blocking
        return self._tenants.of(assigned[1])

    def _serve(self) -> None:
        """Take jobs until the store closes. One thread's whole life."""
        while (job := self._take()) is not None:
            self._run(job)

    def _take(self) -> _Job | None:
        with self._work_came:
            self._work_came.wait_for(lambda: self._closing or bool(self._queue))
            if self._closing:
                return None
            job = heappop(self._queue)
            job.work.busy = True
            return job

    def _run(self, job: _Job) -> None:
        def on_page(_index: int, verdict: Verdict) -> bool:
            return self._answer(job, verdict)

        work = job.work
        rest = Verdict.FAILED
        self._mine.give_up_at = job.give_up_at
        try:
            if work.unwanted:
                rest = Verdict.UNREAD
            elif self._clock() >= job.give_up_at:
                rest = Verdict.TIMED_OUT
            elif work.kind is Kind.EXISTS:
                job.blocking.exists(work.keys, on_page)
            elif work.kind is Kind.GET:
                job.blocking.get_into(work.keys, work.buffers, on_page)
            else:
                job.blocking.put(work.keys, work.buffers, on_page)
        except BaseException as error:  # noqa: BLE001 - whatever an engine raises is a verdict here
            rest = Verdict.TIMED_OUT if isinstance(error, TimeoutError) else Verdict.FAILED
            self.errors.append(f"{work.kind.name.lower()}: {type(error).__name__}: {error}")
        self._end(work, rest)

    def _answer(self, job: _Job, verdict: Verdict) -> bool:
        """Book one key; True where the engine is to go on with the next."""
        late = self._clock() >= job.give_up_at
        with self._changed:
            job.work.answer(verdict)
            if late:
                job.work.finish(Verdict.TIMED_OUT)
            self._moved[job.work.ticket] = job.work
            return not job.work.answered and not self._closing

    def _end(self, work: Operation, rest: Verdict) -> None:
        """Answer for the keys that the engine left out; they count as `rest`."""
        with self._changed:
            if not work.answered:
                work.answer(rest)
                work.finish(rest)
            work.busy = False
            self._tell(work)

    def _give_up_queued(self) -> None:
        """Answer for queued jobs whose deadline passed: no thread has touched their buffers."""
        now = self._clock()
        if not any(job.give_up_at <= now for job in self._queue):
            return
        for job in self._queue:
            if job.give_up_at <= now:
                job.work.answer(Verdict.TIMED_OUT)
                job.work.finish(Verdict.TIMED_OUT)
                self._tell(job.work)
        self._queue = sorted(job for job in self._queue if not job.work.answered)

    def _tell(self, work: Operation) -> None:
        """Let the end of an operation be seen by `poll` and wake who waits for one."""
        self._moved[work.ticket] = work
        self._ended += 1
        self._changed.notify_all()
