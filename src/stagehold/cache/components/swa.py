"""SWA: KV of a sliding window. Of a prefix only the last W pages are ever looked at, and whole or not at all.

Owns when a boundary has its window, how far a use reaches, and how window slots are found: straight from
the node, or through an index map from FULL slots; a request may compute in a ring of its own. A node
without its window is a tombstone.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stagehold.cache.components.base import Component, Cut, Span, Splice
from stagehold.cache.components.shares import WindowShare
from stagehold.cache.errors import CacheRefused, SlotRefused
from stagehold.cache.keys import Chain
from stagehold.cache.node import Node
from stagehold.cache.pools import Pool

if TYPE_CHECKING:
    from stagehold.cache.tree import Tree

SWA = "swa"


class IndexMap:
    """Window slot of each FULL slot, for kernels that look a window up through the FULL slot of its page."""

    __slots__ = ("_window",)

    NOWHERE = -1
    """Stands in the array, which kernels read as it is, for a FULL slot without a window slot."""

    def __init__(self, n_full_slots: int) -> None:
        self._window = array("i", [self.NOWHERE]) * n_full_slots

    def point(self, full: Sequence[int], window: Sequence[int]) -> None:
        """Let each FULL slot lead to the window slot beside it."""
        for source, target in zip(full, window, strict=True):
            self._window[source] = target

    def clear(self, full: Sequence[int]) -> None:
        """Let these FULL slots lead nowhere."""
        for source in full:
            self._window[source] = self.NOWHERE

    def translate(self, full: Sequence[int]) -> list[int]:
        """Window slots of the FULL slots; refuses one that leads nowhere."""
        found = [self._window[source] for source in full]
        if self.NOWHERE in found:
            raise SlotRefused(f"index map: FULL slot {full[found.index(self.NOWHERE)]} has no window slot")
        return found


class RequestRing:
    """The window of one running request: page i lies in place i modulo the size."""

    __slots__ = ("_pool", "_slots")

    def __init__(self, pool: Pool, slots: Sequence[int]) -> None:
        self._pool = pool
        self._slots = list(slots)

    def slot(self, page: int) -> int:
        """Slot in which `page` is computed."""
        return self._slots[page % len(self._slots)]

    def hand_over(self, end: int) -> list[int]:
        """Give away the slots of the last pages before boundary `end`, in page order, and free the rest.

        What the ring holds is then published with the request's pages; the ring is empty and of no more use.
        """
        last = [self.slot(page) for page in range(max(0, end - len(self._slots)), end)]
        self._pool.free([slot for slot in self._slots if slot not in last])
        self._slots = []
        return last


class SlidingWindow(Component):
    """A window of `pages` pages. With a `ring` a budget may use the last slot; else one stays free."""

    splice = Splice.WHOLE
    per_page = True
    rebuilds = True
    priority = 1

    def __init__(
        self,
        pages: int,
        *,
        gates: bool = True,
        ring: bool = False,
        index_map: IndexMap | None = None,
        name: str = SWA,
    ) -> None:
        super().__init__(gates=gates)
        if pages < 1:
            raise CacheRefused(f"{name}: expected a window of at least one page, got {pages}")
        self.name = name
        self.pages = pages
        self.ring_per_request = ring
        self.index_map = index_map

    def reach(self, end: int) -> int:
        """First page of the window before `end`."""
        return end - self.pages if end > self.pages else 0

    def retreat(self, node: Node, at: int) -> tuple[Node, int]:
        """Jump to the start of the nearest tombstone in the window: all boundaries behind see it too."""
        low, mine, up = at - self.pages, self.at, node
        while up.end > low and up.end:
            if not up.cells[mine].slots:
                return up.parent, up.start
            up = up.parent
        return node, at

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Return a full window, or a shorter sequence whole at the root, or nothing in mid-tree."""
        if suffix >= self.pages:
            return self.pages
        return 0 if anchor else suffix

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Return what a request newly occupies at its peak, in pages.

        The window of what it has published, beside one chunk that it computes or the window that it decodes, and
        a page for what begins in the middle of one.
        """
        return min(extend, self.pages) + max(min(extend, chunk), min(new, self.pages)) + 1

    def share(self, hit: int, shown: Sequence[int]) -> WindowShare:
        """See the base class."""
        return WindowShare(self.pages, hit, shown)

    def fits(self, need: int, room: int) -> bool:
        """Whether a need fits: exactly with a ring of its own, strictly otherwise."""
        return need <= room if self.ring_per_request else need < room

    # -- the index map follows every slot that comes or goes -------------------------------------------------

    def born(self, node: Node, slots: list[int]) -> None:
        """See the base class."""
        super().born(node, slots)
        if self.index_map is not None and slots:
            self.index_map.point(node.slots, slots)

    def fill(self, node: Node, slots: list[int]) -> None:
        """See the base class."""
        super().fill(node, slots)
        if self.index_map is not None:
            self.index_map.point(node.slots, slots)

    def gone(self, node: Node) -> None:
        """See the base class."""
        super().gone(node)
        if self.index_map is not None:
            self.index_map.clear(node.slots)

    def rehomed(self, node: Node, old: list[int]) -> None:
        """See the base class."""
        if self.index_map is not None:
            self.index_map.clear(old)
            if node.cells[self.at].slots:
                self.index_map.point(node.slots, node.cells[self.at].slots)

    def trimmed(self, node: Node, pages: int) -> None:
        """See the base class."""
        super().trimmed(node, pages)
        if self.index_map is not None:
            self.index_map.clear(node.slots[pages:])


def swa_tombstone_ranges(tree: Tree, chain: Chain, start: int, end: int, *, component: str = SWA) -> list[Span]:
    """Maximal merged half-open spans of tombstones in the live part of pages [start, end); read-only."""
    live = tree.full_match(chain, end)
    return tree.missing(chain, start, min(live, end), component) if live > start else []


def attach_swa_window(
    tree: Tree, chain: Chain, end: int, spans: Sequence[Span], slots: Sequence[int], *, component: str = SWA
) -> list[Cut]:
    """Fill tombstones so that boundary `end` has its window again; see `Tree.attach` for what is refused."""
    return tree.attach(chain, end, spans, slots, component=component)
