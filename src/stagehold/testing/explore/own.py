"""What a pair keeps besides its engines: where requests are for the scheduler, and what the ranks are given.

Owns no rule and makes no move.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stagehold.lifecycle.data import Handle, HoldData, Plan
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.ranks.group import Facts
from stagehold.lifecycle.visits import deliver_all
from stagehold.testing.explore.small import Budget

RANKS = 2


@dataclass(slots=True)
class Delivery:
    """The engines' `deliver`: all of the hold, or all but a page, or nothing."""

    how: str = "all"

    def __call__(self, hold: HoldData, live: int, promised: int) -> int:
        """See `stagehold.lifecycle.visits.Deliver`."""
        return {"all": deliver_all(hold, live, promised), "some": promised - 1, "none": 0}[self.how]


@dataclass(slots=True)
class Place:
    """A rank's place in the group. The exchange is made by the pair, so that none is left to the engine."""

    rank: int
    size: int = RANKS
    staged: bool = False

    def exchange(self, facts: Facts) -> Facts:  # noqa: ARG002
        """Never asked: `Pair.tick` gives what was agreed to `proceed`."""
        raise Misuse("the ranks of a pair exchange in `Pair.tick`")

    def gather(self, message: bytes) -> list[bytes]:  # noqa: ARG002
        """Never asked: a pair whose ranks have recorded different things stops before that."""
        raise Misuse("the ranks of a pair never gather")


@dataclass(slots=True)
class Own:
    """What a pair keeps of its own between moves. `stands` says of each request where it is for the scheduler."""

    budget: Budget
    stands: list[str]
    handles: list[Handle | None]
    plans: dict[int, tuple[Plan, ...]] = field(default_factory=dict)
    visited: list[int] = field(default_factory=list)  # visits since the last tick
    fresh: bool = True  # since the last tick requests have arrived and nothing else was done


WAITS, RUNS, COMPUTED, AWAY, GONE = "waits", "runs", "computed", "away", "gone"
