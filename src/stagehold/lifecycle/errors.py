"""What an embedder can be told by exception. What may happen in service is an enum member instead."""

from __future__ import annotations

from stagehold.cache.errors import InvariantBroken

__all__ = [
    "Diverged",
    "InvariantBroken",
    "Misuse",
    "PartialDelivery",
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
    """Ranks did not record the same tick. Nothing of the tick that found it was applied; what is left is to close."""


class PartialDelivery(StageholdError):
    """A hold delivered something strictly between nothing and what it promised.

    Everything was rolled back and the request was capped before this was raised.
    """
