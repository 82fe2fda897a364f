"""What this server believes the store to hold, and what it has just heard that it does not: advice, never a fact.

Only an acknowledged write or a positive query teaches; any shortfall unteaches. Bounded in keys and in ticks; the
oldest lesson goes first. Asking is not use: no question renews anything. Keys are page keys, which carry their
namespace.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable

GRAINS = 64
"""Steps in which beliefs age: one is given up at most a 64th of its time early, and few ticks are remembered for it."""


class Beliefs:
    """At most `capacity` page keys believed stored, for `keep_ticks` each, and a count of those on their way.

    A page that was not there when the store was asked counts as absent for `absent_ticks` (0: never).
    """

    def __init__(self, capacity: int, *, keep_ticks: int = 1 << 62, absent_ticks: int = 0) -> None:
        self._capacity = capacity
        self._keep_ticks = keep_ticks
        self._absent_ticks = absent_ticks
        self._tick = 0
        self._stored: OrderedDict[bytes, int] = OrderedDict()  # key -> number of the lesson that taught it last
        self._taught: deque[tuple[int, int]] = deque()  # tick, and the last lesson of the grain that began there
        self._absent: OrderedDict[bytes, int] = OrderedDict()  # key -> tick from which it may be there again
        self._in_flight: Counter[bytes] = Counter()
        self.lessons = 0
        self.wrong = 0  # pages believed stored that did not come back, since the start

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

    def is_absent(self, key: bytes) -> bool:
        """Whether the store was asked for the page just now and did not have it."""
        return key in self._absent

    def teach(self, keys: Iterable[bytes]) -> None:
        """These pages were acknowledged, or seen by a query."""
        self.lessons += 1
        for key in keys:
            self._stored[key] = self.lessons
            self._stored.move_to_end(key)
            self._absent.pop(key, None)
        while len(self._stored) > self._capacity:
            self._stored.popitem(last=False)
        if self._taught and self._tick - self._taught[-1][0] <= self._keep_ticks // GRAINS:
            self._taught[-1] = (self._taught[-1][0], self.lessons)
        else:
            self._taught.append((self._tick, self.lessons))

    def unteach(self, keys: Iterable[bytes], asked_at: int | None = None) -> None:
        """These pages did not come back; what was taught after lesson `asked_at`, when the store was asked, stays."""
        for key in keys:
            if asked_at is None or self._stored.get(key, asked_at + 1) <= asked_at:
                self.wrong += self._stored.pop(key, None) is not None

    def deny(self, key: bytes) -> None:
        """The store has said that it does not have this page."""
        if self._absent_ticks and key not in self._stored:
            self._absent[key] = self._tick + self._absent_ticks
            self._absent.move_to_end(key)
            if len(self._absent) > self._capacity:
                self._absent.popitem(last=False)

    def age(self, tick: int) -> None:
        """It is `tick` now: what was learned too long ago counts no more. Costs what is due."""
        self._tick = tick
        while self._absent and next(iter(self._absent.values())) <= tick:
            self._absent.popitem(last=False)
        while self._taught and tick - self._taught[0][0] >= self._keep_ticks:
            _, lesson = self._taught.popleft()
            while self._stored and next(iter(self._stored.values())) <= lesson:
                self._stored.popitem(last=False)

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
        """Drop every belief about the store (another one was attached)."""
        self._stored.clear()
        self._taught.clear()
        self._absent.clear()

    @property
    def flying(self) -> int:
        """Pages on their way to the store."""
        return len(self._in_flight)
