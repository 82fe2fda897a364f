"""Makes a store with real threads deterministic in ticks.

Every operation runs for real at once, but is reported in the tick that a seeded draw named at submission;
`poll` blocks for one that is due and not finished yet. Only lookups overlap each other: reads renew pages and
writes evict them, so each of those waits for what came before it, and what it finds does not depend on how
fast the disk was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stagehold.cache.stores.dice import Dice
from stagehold.cache.stores.operations import Kind
from stagehold.cache.stores.protocol import Buffer, Progress, Verdict, WaitableStore, assign_tenant
from stagehold.cache.stores.simulated import Delays


@dataclass(slots=True)
class _Held:
    """An operation of the inner store: when it may be told, and how far it really is."""

    kind: Kind
    pages: int
    submitted: int
    due: int
    real: Progress
    told: int = 0
    unwanted: bool = False

    def promised(self, tick: int) -> int:
        """How many pages are to be told by `tick`: a get comes in evenly, everything else at once."""
        if tick >= self.due:
            return self.pages
        if self.kind is not Kind.GET or self.unwanted:
            return 0
        return self.pages * (tick - self.submitted) // (self.due - self.submitted)


class DelayedStore:
    """A `Store` over a threaded one, with completions in seeded ticks.

    Unlike other stores, its calls may block in wall time, for at most `patience_seconds` (then
    TimeoutError: the inner store has a deadline of its own, and broke it).
    """

    def __init__(
        self,
        inner: WaitableStore,
        seed: int,
        *,
        delays: Delays | None = None,
        patience_seconds: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = inner.name
        self.inner = inner
        self._random = Dice(seed)
        self._delays = delays or Delays()
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._held: dict[int, _Held] = {}

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        self._hold(ticket, Kind.EXISTS, len(keys), tick)
        self.inner.exists(ticket, keys, tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self._hold(ticket, Kind.GET, len(keys), tick)
        self.inner.get_into(ticket, keys, buffers, tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`."""
        self._hold(ticket, Kind.PUT, len(keys), tick)
        self.inner.put(ticket, keys, buffers, tick)

    def poll(self, tick: int) -> list[Progress]:
        """Report what is due in `tick`, in ticket order, blocking for what is not finished."""
        reports = []
        for ticket in sorted(self._held):
            held = self._held[ticket]
            promised = held.promised(tick)
            if promised > held.told or tick >= held.due:
                self._await(ticket, promised, whole=tick >= held.due)
                reports += self._tell(ticket, promised, tick)
        return reports

    def cut(self, ticket: int, tick: int) -> None:
        """See `CuttableStore.cut`; a get is told to have ended in the next tick, behind the pages told of so far.

        In truth all of it is read: how far it would have come depends on how fast the disk is. Everything else has
        run at once, and is told when it was to be.
        """
        held = self._held.get(ticket)
        if held is not None and held.kind is Kind.GET and held.due > tick:
            held.unwanted = True
            held.due = tick + 1

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the inner store can."""
        assign_tenant(self.inner, ticket, namespace)

    def in_flight(self) -> list[int]:
        """Return the tickets not yet reported done, ascending."""
        return sorted(self._held)

    def close(self) -> None:
        """See `Store.close`."""
        self._held.clear()
        self.inner.close()

    def _hold(self, ticket: int, kind: Kind, pages: int, tick: int) -> None:
        assert ticket not in self._held, f"ticket {ticket} is in flight already"
        before = list(self._held.items())
        self._finish(told for told, held in before if (kind, held.kind) != (Kind.EXISTS, Kind.EXISTS))
        least, most = self._delays.of(kind)
        due = tick + self._random.randint(least, most)
        self._held[ticket] = _Held(kind, pages, tick, due, Progress(ticket, done=False, good=0, verdicts=()))

    def _tell(self, ticket: int, promised: int, tick: int) -> list[Progress]:
        held = self._held[ticket]
        if tick >= held.due:
            del self._held[ticket]
            return [_ended(held)]
        good = min(promised, held.real.good)
        if good <= held.told:
            return []
        held.told = good
        return [replace(held.real, done=False, good=good, verdicts=held.real.verdicts[:good])]

    def _finish(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            self._await(ticket, 0, whole=True)

    def _await(self, ticket: int, good: int, *, whole: bool) -> None:
        """Block until the operation is done or, unless it has to be `whole`, has `good` good pages."""
        held = self._held[ticket]
        give_up_at = self._clock() + self._patience_seconds
        while not held.real.done and (whole or held.real.good < good):
            self._collect()
            if held.real.done or self._clock() >= give_up_at:
                break
            # Waiting wakes at the end of an operation only; part of one has to be looked for.
            self.inner.wait(0.1 if whole else 0.001)
        if whole and not held.real.done:
            raise TimeoutError(f"ticket {ticket} of store {self.name} did not end in {self._patience_seconds} s")

    def _collect(self) -> None:
        """Take note of how far the inner store is. Its own ticks mean nothing to it."""
        for progress in self.inner.poll(0):
            self._held[progress.ticket].real = progress


def _ended(held: _Held) -> Progress:
    """The last report: the real one, or only what was told before the operation was cut."""
    if not held.unwanted:
        return held.real
    unread = (Verdict.UNREAD,) * (held.pages - held.told)
    return replace(held.real, good=held.told, verdicts=held.real.verdicts[: held.told] + unread)
