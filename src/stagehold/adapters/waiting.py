"""Calls that wait, over a store whose calls return at once; for servers that bring threads of their own.

Owns the tickets and the only poll loop of the store. A call comes back when the store has reported the end of all of
it, never before: until then the buffers are the store's. Stores end their operations by their own deadlines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from stagehold.cache.stores.protocol import Buffer, Store, Verdict, WaitableStore

PAUSE_SECONDS = 0.0005
"""How often a store is asked that cannot be waited for: those count ticks, and have none but these."""

LONGEST_WAIT_SECONDS = 0.05
"""A thread that waits looks again after this long, since another one may have polled what it waits for."""


class Waiting:
    """`store`, which it closes, for any number of threads. A call is cut into operations of at most `most` keys.

    Verdicts are given for every key, in order. Raises RuntimeError once closed.
    """

    def __init__(self, store: Store, most: int = 32) -> None:
        if most < 1:
            raise ValueError(f"operations of {most} keys: expected at least 1")
        self._store = store
        self._most = most
        self._lock = threading.Lock()
        self._tickets = count(1)
        self._tick = 0
        self._ended: dict[int, tuple[Verdict, ...]] = {}
        self._closed = False
        self._over = threading.Event()  # the store touches no buffer any more

    def exists(self, keys: Sequence[bytes]) -> list[Verdict]:
        """HIT for each key that is present."""
        return self._run(lambda ticket, part: self._store.exists(ticket, keys[part], self._tick), len(keys))

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer]) -> list[Verdict]:
        """HIT where the buffer (writable, format 'B', the page's length) has the verified page now."""
        return self._run(
            lambda ticket, part: self._store.get_into(ticket, keys[part], buffers[part], self._tick), len(keys)
        )

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer]) -> list[Verdict]:
        """STORED where a later get would find the page."""
        return self._run(lambda ticket, part: self._store.put(ticket, keys[part], buffers[part], self._tick), len(keys))

    def _run(self, begin: Callable[[int, slice], None], keys: int) -> list[Verdict]:
        tickets = []
        with self._lock:
            if self._closed:
                raise RuntimeError(f"store {self._store.name} is closed")
            for first in range(0, keys, self._most):
                ticket = next(self._tickets)
                begin(ticket, slice(first, first + self._most))
                tickets.append(ticket)
        return [verdict for ticket in tickets for verdict in self._end_of(ticket)]

    def _end_of(self, ticket: int) -> tuple[Verdict, ...]:
        while True:
            with self._lock:
                closed = self._closed
                if not closed:
                    self._poll()
                if ticket in self._ended:
                    return self._ended.pop(ticket)
            if closed:
                self._over.wait()
                raise RuntimeError(f"store {self._store.name} was closed meanwhile")
            if isinstance(self._store, WaitableStore):
                self._store.wait(LONGEST_WAIT_SECONDS)
            else:
                time.sleep(PAUSE_SECONDS)

    def _poll(self) -> None:
        self._tick += 1
        for progress in self._store.poll(self._tick):
            if progress.done:
                self._ended[progress.ticket] = progress.verdicts

    def close(self) -> None:
        """Close the store. Idempotent; calls that are under way raise, once the store has let go of their buffers."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._store.close()
        finally:
            self._over.set()
