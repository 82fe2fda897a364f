"""How long a prefix can be restored when several pools must have their part of it. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.adapters.sglang.options import UnsupportedError

ALL, TRAILING = "all_pages", "trailing_pages"


def leading(present: Sequence[bool]) -> int:
    """How many are present before the first that is not."""
    return next((index for index, there in enumerate(present) if not there), len(present))


def lengths(policy: str, present: Sequence[bool], trailing: int) -> list[int]:
    """Prefix lengths in pages, ascending and from 1, that a pool of this hit policy can restore.

    `present[i]`: page i is stored. `trailing` is how many pages at the end of a prefix the pool needs, for
    `trailing_pages`; a shorter prefix needs all of its own. Raises UnsupportedError for a policy that is not known.
    """
    if policy == ALL:
        return list(range(1, leading(present) + 1))
    if policy != TRAILING:
        raise UnsupportedError(f"hit policy {policy!r} is not supported; expected {ALL} or {TRAILING}")
    found, run = [], 0
    for end, there in enumerate(present, start=1):
        run = run + 1 if there else 0
        if run >= min(end, max(1, trailing)):
            found.append(end)
    return found
