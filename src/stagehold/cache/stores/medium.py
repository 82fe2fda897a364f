"""What several simulated stores can have in common: the pages that are stored, and the way to them.

And how a capacity is divided among tenants, there and in folders.

Plain books: nothing here draws, waits or looks at a page object.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

NOBODYS_PAGES = 128
"""What pages of no tenant have room for: a test page for each rank, and what a tool tries."""


def divide(capacity_bytes: int, tenants: int, page_bytes: int) -> tuple[int, int]:
    """Return the part of a capacity for pages of no tenant, `page_bytes` each with all they take, and that of each.

    >>> divide(1000, 3, 1)
    (128, 290)
    >>> divide(1000, 3, 4096)
    (250, 250)
    """
    nobodys = min(NOBODYS_PAGES * page_bytes, capacity_bytes // (tenants + 1))
    return nobodys, (capacity_bytes - nobodys) // tenants


class Medium:
    """The stored page objects, least recently used first, within a capacity in bytes (None: no limit).

    Several `SimulatedStore`s may share one, as several ranks or a restarted process share a directory.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.evicted_pages = 0
        self._pages: dict[bytes, bytes] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._pages

    def __deepcopy__(self, memo: dict[int, Any]) -> Medium:
        """Page objects never change, so a copy shares them."""
        copied = Medium(self.capacity_bytes)
        copied.used_bytes, copied.evicted_pages = self.used_bytes, self.evicted_pages
        copied._pages = self._pages.copy()
        return copied

    def part(self, namespace: bytes | None, *, take_place: bool) -> Medium:  # noqa: ARG002
        """Return where the pages of a tenant lie, by its digest (None: of no tenant): here, all in one."""
        return self

    def parts(self) -> list[Medium]:
        """Return all places where pages lie."""
        return [self]

    def names(self) -> list[bytes]:
        """Return the names held, least recently used first."""
        return list(self._pages)

    def read(self, name: bytes) -> bytes | None:
        """Return the page object and renew it, None where it is not held."""
        raw = self._pages.pop(name, None)
        if raw is not None:
            self._pages[name] = raw
        return raw

    def write(self, name: bytes, raw: bytes) -> bool:
        """Keep a page object, evicting the least recently used; False where it can never fit."""
        if self.capacity_bytes is not None and len(raw) > self.capacity_bytes:
            return False
        self.remove(name)
        self._pages[name] = raw
        self.used_bytes += len(raw)
        while self.capacity_bytes is not None and self.used_bytes > self.capacity_bytes:
            self.remove(next(iter(self._pages)))
            self.evicted_pages += 1
        return True

    def remove(self, name: bytes) -> bool:
        """Forget a page object; False where it was not held."""
        raw = self._pages.pop(name, None)
        self.used_bytes -= len(raw or b"")
        return raw is not None


class TenantMedium(Medium):
    """A medium in equal parts for so many tenants; as it stands, it is the part of no tenant.

    `capacity_bytes` is for all parts together, and a page takes `page_bytes`, its header included. A tenant that comes
    when all places are taken can keep nothing, and finds nothing.
    """

    def __init__(self, capacity_bytes: int, tenants: int, page_bytes: int) -> None:
        nobodys, self.part_bytes = divide(capacity_bytes, tenants, page_bytes)
        super().__init__(nobodys)
        self.tenants = tenants
        self._parts: dict[bytes, Medium] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> TenantMedium:
        """As of `Medium`, part by part."""
        copied = TenantMedium(0, self.tenants, 0)
        vars(copied).update(vars(super().__deepcopy__(memo)), part_bytes=self.part_bytes)
        copied._parts = deepcopy(self._parts, memo)
        return copied

    def part(self, namespace: bytes | None, *, take_place: bool) -> Medium:
        """See `Medium.part`."""
        if namespace is None:
            return self
        if take_place and namespace not in self._parts and len(self._parts) < self.tenants:
            self._parts[namespace] = Medium(self.part_bytes)
        return self._parts.get(namespace) or Medium(0)

    def parts(self) -> list[Medium]:
        """See `Medium.parts`; in the order in which the tenants came."""
        return [self, *self._parts.values()]


class Link:
    """What can pass in one tick between a medium and all stores on the link: reads and writes of every rank.

    The busy stores have a part each; what does not divide goes round. Who is busy is known from each store's
    last poll: a store that begins gets what the others left, and its part from the next tick on.
    """

    def __init__(self, pages_per_tick: int) -> None:
        if pages_per_tick < 1:
            raise ValueError(f"pages_per_tick is {pages_per_tick}: expected at least 1, or None for no limit")
        self.pages_per_tick = pages_per_tick
        self._busy: list[bool] = []
        self._tick: int | None = None
        self._whole = self._left = 0

    def join(self) -> int:
        """Return the place of one more store on the link."""
        self._busy.append(False)
        return len(self._busy) - 1

    def grant(self, place: int, tick: int, *, busy: bool) -> int:
        """Return how many pages the store at `place` may move in `tick`, and say whether it has any to move."""
        if tick != self._tick:
            self._whole = self._left = self.pages_per_tick * (1 if self._tick is None else tick - self._tick)
            self._tick = tick
        self._busy[place] = busy
        if not busy:
            return 0
        count = sum(self._busy)
        turn = (sum(self._busy[:place]) + tick) % count
        part = self._whole // count + (turn < self._whole % count)
        granted = min(part, self._left)
        self._left -= granted
        return granted
