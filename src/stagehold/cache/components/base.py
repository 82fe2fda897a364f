"""The protocol by which the tree, the lifecycle and admission speak to a kind of KV, without its name.

Owns the base class of all components beside the one that carries the tree: what each declares, and the arithmetic of
holes and their filling. The cells behind it are `Cells`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from stagehold.cache.components.cells import Cells, nodes_between
from stagehold.cache.components.shares import Share
from stagehold.cache.errors import AttachRefused, SpanRefused
from stagehold.cache.node import Node


class Splice(Enum):
    """How much of a fetched span of a component can be joined to a live prefix."""

    TRIMMABLE = "trimmable"  # any tail of it
    WHOLE = "whole"  # the window as a whole, or nothing
    CHECKPOINT = "checkpoint"  # the one slot at its end, or nothing


class Span(NamedTuple):
    """Pages [start, end) of a path."""

    start: int
    end: int


class Cut(NamedTuple):
    """A node boundary that a change made at `page` of a path: queued writes and pins over it follow."""

    page: int


class Declared(Protocol):
    """What every component declares, the one that carries the tree included."""

    @property
    def name(self) -> str:
        """Name of the component, of its pool, and of its part in object names."""

    splice: Splice
    per_page: bool
    gates: bool
    priority: int
    copies_on_use: bool

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Staging units that a hold of `suffix` pages behind `anchor` live pages needs of this component."""

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Slots that a request reserves: it computes `extend` pages in chunks, then grows by `new`."""

    def fits(self, need: int, room: int) -> bool:
        """Whether a need fits into `room` free and evictable slots."""


class Component(Cells):
    """One kind of KV beside the one that carries the tree.

    `gates`: whether a match must end where this component can go on. `per_page`: one slot for each page of a
    node, or one for its end. `rebuilds`: whether its slots are reached through those of the spine, so that
    filling a hole from newly computed pages takes the new spine slots as well. A subclass declares these
    and says which boundaries are valid, how far a use reaches and what a node without it becomes.
    """

    splice: Splice
    priority: int
    rebuilds: bool = False
    copies_on_use: bool = False

    def __init__(self, *, gates: bool = True) -> None:
        super().__init__()
        self.gates = gates

    # -- what a subclass says ------------------------------------------------------------------------------

    def retreat(self, node: Node, at: int) -> tuple[Node, int]:
        """Return (node, at) if boundary `at` inside `node` is valid, else a lower candidate.

        No boundary between the two is valid; the candidate itself need not be. Boundary 0 always is.
        """
        raise NotImplementedError

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Staging units that a hold of `suffix` pages behind `anchor` live pages needs of this component."""
        raise NotImplementedError

    def share(self, hit: int, shown: Sequence[int]) -> Share:
        """What a request that begins behind `hit` live pages has of this component; `shown` are the tree's slots."""
        raise NotImplementedError

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Slots that a request reserves: it computes `extend` pages in chunks, then grows by `new`."""
        raise NotImplementedError

    def fits(self, need: int, room: int) -> bool:
        """Whether a need fits into `room` free and evictable slots, of which one stays free."""
        return need < room

    # -- holes ---------------------------------------------------------------------------------------------

    def holes(self, node: Node, start: int, end: int) -> list[Span]:
        """Return the maximal merged spans of [start, end) without slots, in page order.

        `node` holds page end - 1 or lies below it. A checkpoint's only hole is the page before boundary
        `end`.
        """
        if not self.per_page:
            have = start >= end or (node.end == end and node.cells[self.at].slots)
            return [] if have else [Span(end - 1, end)]
        spans: list[Span] = []
        while node.end > start:
            low, high = max(start, node.start), min(end, node.end)
            if not node.cells[self.at].slots and low < high:
                if spans and spans[-1].start == high:
                    high = spans.pop().end
                spans.append(Span(low, high))
            node = node.parent
        spans.reverse()
        return spans

    def missing(self, node: Node, live: int, span: Span) -> list[Span]:
        """Return what of a span the component lacks; `live` pages are live, the last one in `node`."""
        start, end = span
        if not self.per_page:
            return [Span(end - 1, end)] if live < end and start < end else self.holes(node, start, end)
        spans = self.holes(node, start, min(live, end))
        behind = max(live, start)
        if behind < end:
            if spans and spans[-1].end == behind:
                behind = spans.pop().start
            spans.append(Span(behind, end))
        return spans

    def slots(self, node: Node, start: int, end: int) -> list[int]:
        """Return the slots of pages [start, end), or of boundary `end`; refuses a span with a hole."""
        holes = self.holes(node, start, end)
        if holes:
            raise SpanRefused(f"{self.name}: pages {start} to {end} lack {holes}")
        if not self.per_page:
            return list(node.cells[self.at].slots) if start < end else []
        found: list[int] = []
        for part in nodes_between(node, start):
            found += part.cells[self.at].slots[max(0, start - part.start) : end - part.start]
        return found

    def unlocked(self, node: Node, start: int, end: int) -> int:
        """Return how many slots a lock over pages [start, end) takes from others; it begins and ends with a node.

        Those that can be evicted now, and those that all their holders count on. The last page is in `node`.
        """
        if not self.per_page:
            cell = node.cells[self.at]
            return len(cell.slots) if node.end == end and cell.locks == cell.own else 0
        return sum(
            min(end, part.end) - max(start, part.start)
            for part in nodes_between(node, start)
            if part.cells[self.at].slots and part.cells[self.at].locks == part.cells[self.at].own
        )

    def edges(self, span: Span) -> tuple[int, ...]:
        """Return the pages at which nodes must end so that slots for the span fit whole nodes."""
        return tuple(span) if self.per_page else (span.end,)

    def units(self, spans: Sequence[Span]) -> int:
        """Return how many slots fill the spans."""
        return sum(span.end - span.start for span in spans) if self.per_page else len(spans)

    def admit(self, node: Node, end: int, spans: Sequence[Span], slots: Sequence[int]) -> None:
        """Refuse unless the spans are holes, the slots fit them, and boundary `end` becomes valid."""
        what = f"{self.name}: attaching {list(spans)} for boundary {end}"
        before = 0
        for span in spans:
            if not before <= span.start < span.end <= end:
                raise AttachRefused(f"{what}: expected spans in page order, disjoint, and not behind the boundary")
            before = span.end
            if not self.per_page and span.end != end:
                raise AttachRefused(f"{what}: expected the hole at the boundary")
            if self.holes(node, *span) != [span]:
                raise AttachRefused(f"{what}: {span} lies over a live part")
        if self.units(spans) != len(slots):
            raise AttachRefused(f"{what}: expected {self.units(spans)} slots, got {len(slots)}")
        first = self.reach(end)
        inside = [Span(max(span.start, first), span.end) for span in spans if span.end > first]
        if self.units(inside) != self.units(self.holes(node, first, end)):
            raise AttachRefused(f"{what}: {self.holes(node, first, end)} must all be filled")

    def touch(self, node: Node) -> None:
        """Count a use that ends at `node`."""
        self.renew(node, self.reach(node.end))
