"""The group of one rank: what it found out is what is agreed."""

from __future__ import annotations

from stagehold.lifecycle.ranks.group import Facts, Group

__all__ = ["Facts", "Group", "Solo"]


class Solo:
    """One rank."""

    size = 1
    rank = 0
    staged = False

    def exchange(self, facts: Facts) -> Facts:
        """A copy, so that a fact that arrives later cannot slip into what was agreed."""
        return facts.copy()

    def gather(self, message: bytes) -> list[bytes]:
        """Its own message."""
        return [message]
