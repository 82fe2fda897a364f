"""How far a fetched span can be joined: the arithmetic of ends, over all components, by their protocol alone.

Owns no state. `has(component, page)` says whether a page of a component can be had where it is asked for: in a store,
in the host tier. Positions are pages from the root; a span [start, last) is anchored at its joint live match `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stagehold.cache.components.base import Component, Span

Has = Callable[[str, int], bool]


def staged(part: Component, start: int, last: int) -> Span | None:
    """Pages of a component that a hold of [start, last) brings, whole; None where it cannot bring what is needed."""
    demand = part.staging_demand(start, last - start)
    if last <= start or demand == 0:
        return None
    return Span(last - demand, last) if part.per_page else Span(last - 1, last)


def ends(parts: Sequence[Component], start: int, covered: int, has: Has) -> Iterator[int]:
    """Ends in (start, covered] that every component can restore, falling; all of them where there are no parts.

    `covered` is how far the component that carries the tree reaches. Each page is asked for at most once a part.
    """
    runs = {part.name: _Runs(part, has) for part in parts}
    for end in range(covered, start, -1):
        if all(_can(part, runs[part.name], start, end) for part in parts):
            yield end


def restorable(parts: Sequence[Component], start: int, covered: int, has: Has) -> int:
    """The longest end of `ends`, or `start` where there is none."""
    return next(ends(parts, start, covered, has), start)


def _can(part: Component, runs: _Runs, start: int, end: int) -> bool:
    span = staged(part, start, end)
    return span is not None and runs.whole(span)


class _Runs:
    """Which spans of one component can be had whole; asked for falling ends, so a hole rules out all spans over it."""

    def __init__(self, part: Component, has: Has) -> None:
        self._name = part.name
        self._has = has
        self._there: set[int] = set()
        self._hole = -1

    def whole(self, span: Span) -> bool:
        """Whether every page of the span can be had."""
        if span.start <= self._hole < span.end:
            return False
        for page in range(span.end - 1, span.start - 1, -1):
            if page in self._there:
                continue
            if not self._has(self._name, page):
                self._hole = page
                return False
            self._there.add(page)
        return True
