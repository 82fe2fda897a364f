"""The names of everything that may happen next, and which of it is sure to happen.

A move marked with a clock is *fair*: where its clock runs for ever, the move is made. The world's own moves, IO
and the breaker are not: a store or a copy may hang for ever, and every request must end nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Clock(Enum):
    """What cannot be put off for ever. One of each runs per request, span or write."""

    VISIT = auto()  # the scheduler visits a request whose visit would change something
    CLOSE = auto()  # an open visit ends in its pass
    RUN = auto()  # an admitted request runs to its end
    WAIT = auto()
    LOOKUP = auto()
    DUE = auto()
    PARK = auto()
    FETCH = auto()
    READY = auto()
    WRITE_WAIT = auto()
    PUT = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One kind of move. `repeats`: it may stay inside a cycle; all others must be counted by some row."""

    text: str
    clock: Clock | None = None
    repeats: bool = False


# The scheduler
ADMIT = Move("request {}: visit, admitted", Clock.VISIT)
VISIT = Move("request {}: visit", Clock.VISIT, repeats=True)
SKIP = Move("request {}: visit, skipped: its wait clock starts", Clock.VISIT)
PLAN = Move("request {}: visit", repeats=True)  # may be skipped for room: the ready clock bounds it
SHRINK = Move("request {}: visit", Clock.VISIT, repeats=True)
COMMIT = Move("request {}: commit", Clock.CLOSE, repeats=True)
RELEASE = Move("request {}: release", Clock.CLOSE, repeats=True)
FINISH = Move("request {}: finish", Clock.RUN)
RETRACT = Move("request {}: retract", Clock.RUN)
ABORT = Move("request {}: abort")

# The tick: clocks
WAIT_OUT = Move("request {}: wait clock runs out", Clock.WAIT)
LATE = Move("request {}: lookup limit", Clock.LOOKUP)
DUE = Move("request {}: due", Clock.DUE)
PARKED_OUT = Move("hold of span {}: park limit", Clock.PARK)
FETCHED_OUT = Move("hold of span {}: fetch limit", Clock.FETCH)
READY_OUT = Move("hold of span {}: ready limit", Clock.READY)
WRITE_OUT = Move("write: wait limit", Clock.WRITE_WAIT)
PUT_OUT = Move("write: put limit", Clock.PUT)

# The tick: launches and facts that were collected
ISSUE = Move("request {}: issue")
ANSWER = Move("request {}: answer")
IO_COMMIT = Move("hold of span {}: io_commit")
FETCHED = Move("hold of span {}: fetched")
IO_ENDS = Move("flying hold {}: its IO ends")
START_WRITE = Move("write: start")
COPIED = Move("write: copied")
PUT_ENDED = Move("write: put_ended")
WRITE_IO_ENDS = Move("write: its IO ends")

# Others
OFFER = Move("write: offer")
GROW = Move("tree {}: grows", repeats=True)
EVICT = Move("tree {}: evicted", repeats=True)
ENTOMB = Move("tree {}: window tombstoned", repeats=True)
VANISH = Move("store: the pages of span {} vanish", repeats=True)
DEMOTE = Move("host tier: the pages of span {} arrive", repeats=True)
RECLAIM = Move("host tier: the pages of span {} are reclaimed", repeats=True)
BREAKER = Move("breaker: result", repeats=True)
BREAKER_OUT = Move("breaker: its limit runs out", repeats=True)
SHUT = Move("breaker: close")
FLUSH = Move("caller: flush", repeats=True)
DETACH = Move("caller: detach")


VISITS = frozenset((ADMIT, VISIT, PLAN, SKIP, SHRINK))
"""What a visit of the scheduler may lead to."""


class Labels:
    """Numbers for (move, who, outcome), so that an edge of the graph is one small integer."""

    def __init__(self) -> None:
        self.known: dict[tuple[Move, int, Enum | None], int] = {}
        self.moves: list[tuple[Move, int, Enum | None]] = []

    def number(self, move: Move, who: int, outcome: Enum | None) -> int:
        """The number of this label, a new one where it is seen first."""
        key = (move, who, outcome)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = len(self.moves)
            self.moves.append(key)
        return found

    def text(self, number: int) -> str:
        """The label in words."""
        move, who, outcome = self.moves[number]
        return move.text.format(who) + (f" {outcome.name}" if outcome is not None else "")

    def who(self, number: int) -> int:
        """The request, span or tree that the label names."""
        return self.moves[number][1]

    def is_visit(self, number: int) -> bool:
        """Whether the label is a visit of the scheduler."""
        return self.moves[number][0] in VISITS

    def is_a(self, move: Move, number: int) -> bool:
        """Whether the label is one of `move`."""
        return self.moves[number][0] is move

    def kind(self, number: int) -> str:
        """The label without the number that it names."""
        return self.moves[number][0].text.replace(" {}", "")
