"""Where pages lie side by side at both ends of a copy, so that one call moves several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def runs(ours: Sequence[int], theirs: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first of ours, first of theirs, count) for each stretch in which both ascend by one, in order."""
    first = 0
    for at in range(1, len(ours) + 1):
        if at == len(ours) or ours[at] != ours[at - 1] + 1 or theirs[at] != theirs[at - 1] + 1:
            yield ours[first], theirs[first], at - first
            first = at
