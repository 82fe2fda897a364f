"""What guards look at: the live prefix, wherever it is kept.

Ours is `stagehold.cache.tree.Tree`. An adapter whose engine owns the blocks answers from what that engine tells
it, with empty pins. All lengths are whole pages from the start of the chain.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from stagehold.cache.keys import Chain

R = TypeVar("R")
P = TypeVar("P")


class LiveView(Protocol[R, P]):
    """The live prefix of a chain, and what protects it."""

    changes: int
    """Moves whenever a match could come out otherwise; as long as it stands still, a match is good."""

    def full_match(self, chain: Chain, limit: int | None = None) -> int:
        """Pages of FULL that are live; touches no recency."""

    def joint_match(self, chain: Chain, limit: int | None = None) -> int:
        """Pages of the longest prefix that every gating component can serve; touches no recency."""

    def touch(self, chain: Chain, pages: int) -> None:
        """The prefix was used."""

    def lock(self, chain: Chain, pages: int) -> R:
        """Protect the prefix, all components, for a request that runs."""

    def unlock(self, receipt: R, *, forfeit: bool = False) -> None:
        """End a lock; refused for a receipt that is dead, unless what it protected is given up."""

    def pin(self, chain: Chain, pages: int) -> P:
        """Protect FULL of the prefix for a hold; charged as a set."""

    def unpin(self, receipt: P) -> None:
        """End a pin."""

    def pin_cost(self, chain: Chain, pages: int) -> int:
        """Pages that a pin would newly charge."""

    def protect_cost(self, chain: Chain, pages: int) -> int:
        """Pages that would leave the evictable ones if the prefix were protected now."""
