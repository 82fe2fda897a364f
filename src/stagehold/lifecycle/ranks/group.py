"""What an engine asks of the ranks beside it: one exchange a tick, and a second look after a mismatch.

Owns the words. A group is all ranks that share scheduling, whatever is split over them; it knows nothing of what it
carries.
"""

from __future__ import annotations

from typing import Protocol

from stagehold.lifecycle.facts import Facts

__all__ = ["Facts", "Group"]


class Group(Protocol):
    """All ranks that share scheduling: `size` of them, of which this one is `rank` (from 0)."""

    size: int
    rank: int
    staged: bool
    """Whether other stages act on the same records at other times, so that nothing can be let go of in one tick."""

    def exchange(self, facts: Facts) -> Facts:
        """The element-wise minimum over all ranks; int64, same shape. Exactly once a tick, of one length on every rank.

        Raises `RankLost` where a rank is silent for the group's timeout, or has gone.
        """

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, of any length, in the order of ranks. Only after a mismatch, and then by all."""
