"""What this server believes the store to hold: advice, never a fact.

Only an acknowledged write or a positive query teaches; any shortfall unteaches. Bounded; the oldest lesson goes
first. Asking is not use: `knows` renews nothing. Keys are page keys, which carry their namespace.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable


class Beliefs:
    """At most `capacity` page keys believed stored, and a count of those on their way."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._stored: OrderedDict[bytes, int] = OrderedDict()  # key -> number of the lesson that taught it last
        self._in_flight: Counter[bytes] = Counter()
        self.lessons = 0

    def __len__(self) -> int:
        return len(self._stored)

    def knows(self, key: bytes) -> bool:
        """Whether the page is believed stored."""
        return key in self._stored

    def learned(self, key: bytes, asked_at: int) -> bool:
        """Whether the page was taught after lesson `asked_at`, and is believed stored."""
        return self._stored.get(key, asked_at) > asked_at

    def in_flight(self, key: bytes) -> bool:
        """Whether a write of the page is queued or under way."""
        return key in self._in_flight

    def teach(self, keys: Iterable[bytes]) -> None:
        """These pages were acknowledged, or seen by a query."""
        self.lessons += 1
        for key in keys:
            self._stored[key] = self.lessons
            self._stored.move_to_end(key)
        while len(self._stored) > self._capacity:
            self._stored.popitem(last=False)

    def unteach(self, keys: Iterable[bytes], asked_at: int | None = None) -> None:
        """These pages did not come back; what was taught after lesson `asked_at`, when the store was asked, stays."""
        for key in keys:
            if asked_at is None or self._stored.get(key, asked_at + 1) <= asked_at:
                self._stored.pop(key, None)

    def depart(self, keys: Iterable[bytes]) -> None:
        """A write of these pages was admitted."""
        for key in keys:
            self._in_flight[key] += 1

    def arrive(self, keys: Iterable[bytes]) -> None:
        """A write of these pages ended, well or not."""
        for key in keys:
            self._in_flight[key] -= 1
            if self._in_flight[key] <= 0:
                del self._in_flight[key]

    def forget(self) -> None:
        """Drop every belief about stored pages (another store was attached)."""
        self._stored.clear()

    @property
    def flying(self) -> int:
        """Pages on their way to the store."""
        return len(self._in_flight)
