"""One operation on a store, as its runner keeps it between submission and the last report.

Shared by the stores that answer key by key. It keeps the verdicts and what was reported of them; it moves
no byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from stagehold.cache.stores.protocol import Buffer, Progress, Verdict


class Kind(IntEnum):
    """The three operations of a store."""

    EXISTS = 0
    GET = 1
    PUT = 2


@dataclass(slots=True)
class Operation:
    """Keys in order, the verdicts given so far, and how many leading ones are good.

    While `busy`, somebody may still touch the buffers, and the operation is not done whatever its verdicts
    say. One that is `unwanted` ends with the page that it is in.
    """

    ticket: int
    kind: Kind
    keys: tuple[bytes, ...]
    buffers: tuple[Buffer, ...]
    verdicts: list[Verdict] = field(default_factory=list)
    good: int = 0
    reported_good: int = 0
    busy: bool = False
    unwanted: bool = False

    @property
    def answered(self) -> bool:
        """Whether every key has its verdict."""
        return len(self.verdicts) == len(self.keys)

    @property
    def done(self) -> bool:
        """Whether every key has its verdict and the buffers are the caller's again."""
        return self.answered and not self.busy

    def answer(self, verdict: Verdict) -> None:
        """Give the next key its verdict; a get ends at its first key that is not a hit."""
        assert not self.answered, f"ticket {self.ticket}: a verdict more than there are keys"
        leading = self.good == len(self.verdicts)
        self.verdicts.append(verdict)
        if leading and verdict in (Verdict.HIT, Verdict.STORED):
            self.good += 1
        elif self.kind is Kind.GET:
            self.finish(Verdict.UNREAD)
        if self.unwanted:
            self.finish(Verdict.UNREAD)

    def cut(self) -> None:
        """Nobody wants it: it ends now, or with the page that somebody is busy with."""
        self.unwanted = True
        if not self.busy:
            self.finish(Verdict.UNREAD)

    def finish(self, verdict: Verdict) -> None:
        """Give all keys that have none the same verdict."""
        self.verdicts.extend([verdict] * (len(self.keys) - len(self.verdicts)))

    def report(self) -> Progress | None:
        """Return the progress if it moved since the last report, None otherwise."""
        if not self.done and self.good == self.reported_good:
            return None
        self.reported_good = self.good
        return Progress(self.ticket, self.done, self.good, tuple(self.verdicts))

    def __deepcopy__(self, memo: dict[int, Any]) -> Operation:
        """Copy the books and share the buffers: bytes of the caller are not the operation's to copy."""
        assert not self.busy, f"ticket {self.ticket} is in the hands of a thread and cannot be copied"
        copied = replace(self, verdicts=list(self.verdicts))
        memo[id(self)] = copied
        return copied


def operation(ticket: int, kind: Kind, keys: Sequence[bytes], buffers: Sequence[Buffer] = ()) -> Operation:
    """Build an operation; raises ValueError where keys and buffers do not pair up."""
    if kind is not Kind.EXISTS and len(keys) != len(buffers):
        raise ValueError(f"ticket {ticket}: {len(keys)} keys with {len(buffers)} buffers, expected one each")
    return Operation(ticket, kind, tuple(keys), tuple(buffers))
