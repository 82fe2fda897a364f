"""What was written to a store, seen from outside the engine: pages put, acknowledged, and put though they were there.

It can make puts fail at random, from a seed, before they reach the store. It owns its counts; everything but a failed
put passes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stagehold.cache.stores.dice import Dice
from stagehold.cache.stores.protocol import Buffer, Progress, Store, Verdict, assign_tenant, cut_short


@dataclass(slots=True)
class Puts:
    """Counts over all engines of a replay. `there` has the names of all pages that were ever acknowledged, in order."""

    there: dict[bytes, None] = field(default_factory=dict)
    pages: int = 0
    redundant_pages: int = 0
    failed_puts: int = 0


@dataclass(frozen=True, slots=True)
class _Put:
    names: tuple[bytes, ...]
    sent: int  # so many of them were given to the store


class CountedPuts:
    """A `Store` that counts puts, and fails `fail_share` of them at a random page."""

    def __init__(self, inner: Store, puts: Puts, *, fail_share: float = 0.0, seed: int = 0) -> None:
        self.name = inner.name
        self.puts = puts
        self._inner = inner
        self._fail_share = fail_share
        self._dice = Dice(seed)
        self._flying: dict[int, _Put] = {}
        self._failed: list[int] = []  # tickets of which nothing was given to the store

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        self._inner.exists(ticket, keys, tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self._inner.get_into(ticket, keys, buffers, tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`; one that is to fail is cut short at the page where it does."""
        fails, where = self._dice.random() < self._fail_share, self._dice.random()
        sent = int(where * len(keys)) if fails else len(keys)
        self.puts.failed_puts += fails
        self.puts.pages += sent
        self.puts.redundant_pages += sum(name in self.puts.there for name in keys[:sent])
        self._flying[ticket] = _Put(tuple(keys), sent)
        if sent:
            self._inner.put(ticket, keys[:sent], buffers[:sent], tick)
        else:
            self._failed.append(ticket)

    def poll(self, tick: int) -> list[Progress]:
        """See `Store.poll`."""
        reports = [*self._inner.poll(tick)]
        reports += [Progress(ticket, done=True, good=0, verdicts=()) for ticket in self._failed]
        self._failed.clear()
        return sorted((self._told(report) for report in reports), key=lambda report: report.ticket)

    def _told(self, report: Progress) -> Progress:
        put = self._flying.get(report.ticket)
        if put is None or not report.done:
            return report
        del self._flying[report.ticket]
        stored = (name for name, told in zip(put.names, report.verdicts, strict=False) if told is Verdict.STORED)
        self.puts.there.update(dict.fromkeys(stored))
        if put.sent == len(put.names):
            return report
        rest = (Verdict.FAILED, *[Verdict.UNREAD] * (len(put.names) - put.sent - 1))
        return Progress(report.ticket, done=True, good=report.good, verdicts=(*report.verdicts, *rest))

    def cut(self, ticket: int, tick: int) -> None:
        """See `CuttableStore.cut`, as far as the inner store can."""
        cut_short(self._inner, ticket, tick)

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the inner store can."""
        assign_tenant(self._inner, ticket, namespace)

    def close(self) -> None:
        """See `Store.close`."""
        self._inner.close()
