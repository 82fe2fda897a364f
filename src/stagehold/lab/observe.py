"""Watching a replay from outside the engine: when pages were sent and acknowledged, when requests were admitted.

It owns the events that the oracle reads, one dict each, in order of time. It changes nothing that it watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagehold.cache.stores.protocol import Buffer, Progress, Store, Verdict, assign_tenant, cut_short

PAGE_KEY_BYTES = 32  # an object name begins with the key of its page

Event = dict[str, Any]
"""`{"page": key, "sent": tick}`, `{"page": key, "acked": tick}`, `{"admitted": rid, "tick": tick, "hit_tokens": n}`."""


class Observed:
    """A store that notes puts; everything else passes through."""

    def __init__(self, inner: Store, events: list[Event]) -> None:
        self.name = inner.name
        self._inner = inner
        self._events = events
        self._puts: dict[int, tuple[str, ...]] = {}

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        self._inner.exists(ticket, keys, tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self._inner.get_into(ticket, keys, buffers, tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`."""
        names = tuple(key[:PAGE_KEY_BYTES].hex() for key in keys)
        self._puts[ticket] = names
        self._events += ({"page": name, "sent": tick} for name in names)
        self._inner.put(ticket, keys, buffers, tick)

    def poll(self, tick: int) -> list[Progress]:
        """See `Store.poll`."""
        reports = self._inner.poll(tick)
        for report in reports:
            names = self._puts.pop(report.ticket, ()) if report.done else ()
            for name, verdict in zip(names, report.verdicts, strict=False):
                if verdict is Verdict.STORED:
                    self._events.append({"page": name, "acked": tick})
        return reports

    def cut(self, ticket: int, tick: int) -> None:
        """See `CuttableStore.cut`, as far as the inner store can."""
        cut_short(self._inner, ticket, tick)

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the inner store can."""
        assign_tenant(self._inner, ticket, namespace)

    def close(self) -> None:
        """See `Store.close`."""
        self._inner.close()
