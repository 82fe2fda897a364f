"""What an embedder can be told by exception. What may happen in service is an enum member instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagehold.cache.errors import InvariantBroken

if TYPE_CHECKING:
    from stagehold.lifecycle.ranks.testimony import Divergence

__all__ = [
    "Diverged",
    "InvariantBroken",
    "Misuse",
    "PartialDelivery",
    "RankLost",
    "Reentered",
    "StageholdError",
    "UnknownHandle",
    "WrongThread",
]


class StageholdError(Exception):
    """Base of what callers can do something about; `InvariantBroken` is no such error, but a bug that was found."""


class Misuse(StageholdError):
    """A call that is not legal now; the message says what to do instead."""


class WrongThread(Misuse):
    """A mutating call from a thread that does not own the engine."""


class Reentered(Misuse):
    """A mutating call from inside another one."""


class UnknownHandle(Misuse):
    """The handle names no live attempt of this engine."""


class Diverged(StageholdError):
    """Ranks did not record the same tick. Nothing of the tick that found it was applied; what is left is to close.

    `divergence` says between which ranks, the first record that differs, and what each has in flight; it is None
    where no other rank could be asked.
    """

    def __init__(self, what: str, divergence: Divergence | None = None) -> None:
        super().__init__(what)
        self.divergence = divergence


class RankLost(StageholdError):
    """A rank of the group is silent or gone, so that nothing can be agreed on; what is left is to close.

    `ranks` are the ranks that are known to be missing, ascending; empty where nobody can tell.
    """

    def __init__(self, what: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(what)
        self.ranks = ranks


class PartialDelivery(StageholdError):
    """A hold delivered something strictly between nothing and what it promised.

    Everything was rolled back and the request was capped before this was raised.
    """
