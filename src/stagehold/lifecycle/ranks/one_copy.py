"""A store of pages that every rank holds alike: one object serves all of them, and one rank writes it.

Owns whose turn a put is. What a rank is spared ends well at its next poll, and counts once the rank that writes says
the same: an operation is as far as the slowest rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.cache.stores.protocol import Buffer, Progress, Store, Verdict, assign_tenant, cut_short


class OneCopy:
    """`inner` as rank `rank` of `size` uses it; the tickets, equal on all ranks, go round among them."""

    def __init__(self, inner: Store, rank: int, size: int) -> None:
        self.name = inner.name
        self.inner = inner
        self._rank = rank
        self._size = size
        self._spared: list[Progress] = []

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        self.inner.exists(ticket, keys, tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self.inner.get_into(ticket, keys, buffers, tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`; nothing is written where it is another rank's turn."""
        if ticket % self._size == self._rank:
            self.inner.put(ticket, keys, buffers, tick)
        else:
            self._spared.append(Progress(ticket, done=True, good=len(keys), verdicts=(Verdict.STORED,) * len(keys)))

    def poll(self, tick: int) -> list[Progress]:
        """See `Store.poll`."""
        spared, self._spared = self._spared, []
        return sorted([*self.inner.poll(tick), *spared], key=lambda progress: progress.ticket)

    def cut(self, ticket: int, tick: int) -> None:
        """See `CuttableStore.cut`, as far as the inner store can."""
        cut_short(self.inner, ticket, tick)

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the inner store can."""
        assign_tenant(self.inner, ticket, namespace)

    def close(self) -> None:
        """See `Store.close`."""
        self.inner.close()
