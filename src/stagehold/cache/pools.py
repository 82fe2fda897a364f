"""Slots of the device pools and pages of staging: who may use which number, never what is in it.

A slot is room for one page of one component. Slots come back in a fixed order, so that equal histories give
equal numbers. A generation number per slot is odd while the slot is out and even while it is free; it tells
a stale handle from a live one and a double free from a free. Tensors may be attached and are never looked
at.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stagehold.cache.errors import CacheRefused, InvariantBroken, SlotRefused
from stagehold.cache.tenants import Tenancy

_BULK = 48
"""From this many slots on numpy is faster than a loop (measured: they meet between 40 and 60)."""


class SlotHandle(NamedTuple):
    """A slot as it was when the handle was made."""

    pool: str
    slot: int
    generation: int


class Pool:
    """`n_slots` slots of one component, handed out last in, first out, beginning with slot 0.

    The stack of free slots keeps its length and moves its top, so that no free ever waits for a reallocation.
    """

    __slots__ = ("_generations", "_stack", "free_count", "name", "size", "tensors")

    def __init__(self, n_slots: int, name: str) -> None:
        if n_slots < 1:
            raise CacheRefused(f"pool {name!r}: expected at least one slot, got {n_slots}")
        self.name = name
        self.size = n_slots
        self.tensors: object = None
        self._stack = list(range(n_slots - 1, -1, -1))
        self.free_count = n_slots
        self._generations = array("I", bytes(4 * n_slots))

    def alloc(self, n: int) -> list[int] | None:
        """Hand out `n` slots, or None and nothing at all if fewer are free."""
        top = self.free_count
        if n > top or n < 0:
            return None
        if not n:
            return []
        out = self._stack[top - n : top]
        self.free_count = top - n
        out.reverse()
        if n >= _BULK:
            np.frombuffer(self._generations, np.uint32)[out] += np.uint32(1)
        else:
            generations = self._generations
            for slot in out:
                generations[slot] += 1
        return out

    def free(self, slots: Sequence[int]) -> None:
        """Take slots back; refuses all of them if one is free already, named twice, or out of range."""
        back = slots[::-1]
        if len(slots) >= _BULK:
            self._free_bulk(slots)
        else:
            generations, size = self._generations, self.size
            for done, slot in enumerate(slots):
                if not 0 <= slot < size or not generations[slot] & 1:
                    for undo in slots[:done]:
                        generations[undo] -= 1
                    raise self._refusal(slot)
                generations[slot] += 1
        top = self.free_count
        self.free_count = top + len(slots)
        self._stack[top : self.free_count] = back

    def _free_bulk(self, slots: Sequence[int]) -> None:
        index = np.array(slots)
        if index.dtype.kind != "i":
            raise SlotRefused(f"pool {self.name!r}: expected slots as whole numbers, got {index.dtype}")
        if index.min() < 0 or index.max() >= self.size:
            raise self._refusal(int(index.max() if index.min() >= 0 else index.min()))
        generations = np.frombuffer(self._generations, np.uint32)
        before = generations[index]
        if not (before & 1).all():
            raise self._refusal(int(index[(before & 1) == 0][0]))
        # Writing each place's own number shows a slot that is named twice: the later number overwrites.
        places = np.arange(len(index), dtype=np.uint32)
        generations[index] = places
        twice = generations[index] != places
        generations[index] = before
        if twice.any():
            raise self._refusal(int(index[twice][0]))
        generations[index] = before + np.uint32(1)

    def _refusal(self, slot: int) -> SlotRefused:
        if not 0 <= slot < self.size:
            return SlotRefused(f"pool {self.name!r}: slot {slot} is not one of its {self.size}")
        return SlotRefused(f"pool {self.name!r}: slot {slot} is freed twice (generation {self._generations[slot]})")

    def is_out(self, slot: int) -> bool:
        """Whether somebody owns the slot."""
        return bool(self._generations[slot] & 1)

    def generation(self, slot: int) -> int:
        """How often the slot was handed out and taken back; odd while it is out."""
        return self._generations[slot]

    def handle(self, slot: int) -> SlotHandle:
        """Name the slot for later; refuses a free one."""
        if not 0 <= slot < self.size or not self.is_out(slot):
            raise SlotRefused(f"pool {self.name!r}: slot {slot} is not out, so it has no handle")
        return SlotHandle(self.name, slot, self._generations[slot])

    def resolve(self, handle: SlotHandle) -> int:
        """Return the slot of a handle; refuses one of another pool or of an earlier generation."""
        if handle.pool != self.name or not 0 <= handle.slot < self.size:
            raise SlotRefused(f"pool {self.name!r}: {handle} is not a handle of this pool")
        now = self._generations[handle.slot]
        if now != handle.generation:
            raise SlotRefused(f"pool {self.name!r}: {handle} is stale, the slot is at generation {now}")
        return handle.slot

    def check(self, owners: Mapping[str, Iterable[int]]) -> None:
        """Raise InvariantBroken unless every slot is free or in exactly one of the named classes."""
        free = self._stack[: self.free_count]
        seen = dict.fromkeys(free, "free")
        if len(seen) != len(free):
            raise InvariantBroken(f"pool {self.name!r}: a slot is free twice")
        for slot in free:
            if self.is_out(slot):
                raise InvariantBroken(f"pool {self.name!r}: free slot {slot} has the generation of one in use")
        for owner, slots in owners.items():
            for slot in slots:
                if slot in seen:
                    raise InvariantBroken(f"pool {self.name!r}: slot {slot} is in {seen[slot]!r} and in {owner!r}")
                seen[slot] = owner
        if len(seen) != self.size:
            lost = next(slot for slot in range(self.size) if slot not in seen)
            raise InvariantBroken(f"pool {self.name!r}: slot {lost} is in no class, {self.size - len(seen)} are lost")


def alloc_together(wants: Sequence[tuple[Pool, int]]) -> list[list[int]] | None:
    """Allocate from several pools, or from none of them. Each pool may be named once."""
    if any(n < 0 or n > pool.free_count for pool, n in wants):
        return None
    if len({id(pool) for pool, _ in wants}) != len(wants):
        raise CacheRefused("alloc_together: a pool is named twice")
    return [pool.alloc(n) or [] for pool, n in wants]


class StagingPool:
    """Host pages with reference counts: a page is free when its last reference is dropped."""

    __slots__ = ("_free", "_references", "name", "peak", "shared", "size", "tenancy", "tensors")

    def __init__(self, n_pages: int, name: str = "staging") -> None:
        if n_pages < 0:
            raise CacheRefused(f"pool {name!r}: expected no negative number of pages, got {n_pages}")
        self.name = name
        self.size = n_pages
        self.peak = 0
        self.shared = 0  # pages with more than one reference
        self.tenancy: Tenancy | None = None  # whose pages they are, where tenants have quotas
        self.tensors: object = None
        self._free = list(range(n_pages - 1, -1, -1))
        self._references = array("I", bytes(4 * n_pages))

    @property
    def free_count(self) -> int:
        """Pages without a reference."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Pages with at least one reference."""
        return self.size - len(self._free)

    def references(self, page: int) -> int:
        """How many owners a page has."""
        return self._references[page]

    def alloc(self, n: int, tenant: bytes = b"") -> list[int] | None:
        """Hand out `n` pages with one reference each, or None and nothing at all if fewer are free."""
        free = self._free
        if n > len(free) or n < 0:
            return None
        if not n:
            return []
        out = free[: -n - 1 : -1]
        del free[-n:]
        for page in out:
            self._references[page] = 1
        if self.tenancy is not None:
            self.tenancy.taken(out, tenant)
        self.peak = max(self.peak, self.used)
        return out

    def share(self, pages: Sequence[int]) -> None:
        """Add a reference to each page; refuses all of them if one is free."""
        for page in pages:
            self._live(page)
        for page in pages:
            self._change(page, 1)

    def _change(self, page: int, by: int) -> None:
        before = self._references[page]
        self._references[page] = before + by
        self.shared += (before + by > 1) - (before > 1)
        if self.tenancy is not None:
            self.tenancy.changed(page, before, before + by)

    def free(self, pages: Sequence[int]) -> None:
        """Drop a reference to each page; refuses all of them if one has none left to drop."""
        references = self._references
        for done, page in enumerate(pages):
            try:
                self._live(page)
            except SlotRefused:
                for undo in pages[:done]:
                    self._change(undo, 1)
                raise
            self._change(page, -1)
        # A page that was named twice and fell to zero goes back once, at its last mention.
        gone = [page for page in dict.fromkeys(reversed(pages)) if not references[page]]
        self._free.extend(gone)

    def _live(self, page: int) -> None:
        if not 0 <= page < self.size or not self._references[page]:
            raise SlotRefused(f"pool {self.name!r}: page {page} has no reference to share or to drop")

    def check(self, owners: Mapping[str, Iterable[int]]) -> None:
        """Raise InvariantBroken unless the owners' mentions of each page equal its reference count."""
        counts = array("I", bytes(4 * self.size))
        for pages in owners.values():
            for page in pages:
                counts[page] += 1
        for page in range(self.size):
            if counts[page] != self._references[page]:
                raise InvariantBroken(
                    f"pool {self.name!r}: page {page} has {self._references[page]} references, "
                    f"its owners {sorted(owners)} name it {counts[page]} times"
                )
        if sum(1 for count in counts if not count) != len(self._free):
            raise InvariantBroken(f"pool {self.name!r}: {len(self._free)} pages are listed free")
