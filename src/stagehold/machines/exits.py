"""What each exit does to a request and to a hold in every state: the exits matrix, read from the rows.

An exit is something that ends a wait: the caller, a clock, the store, the live tree, a decree. It reaches a machine
by events; which, and with which outcomes, stands here, and where they lead is looked up in the declarations. Owns
that list, the places where an exit is refused or cannot happen, and the page. It moves no machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from stagehold.machines import labels
from stagehold.machines.matrix import table
from stagehold.specs.declare import Kind, MachineSpec, Row, State
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Answer, Commit, Evaluate, Fetched, HoldEnd, IoCommit, Launch, StillCovered
from stagehold.specs.request import REQUEST, RequestState


class Exit(StrEnum):
    """What may end a wait, in the order of the columns."""

    ABORT = "abort"
    FINISH = "finish"
    RETRACT = "retract"
    DEADLINE = "deadline"
    STORE_ERROR = "store error"
    SHORT_DELIVERY = "short delivery"
    ANCHOR_LOST = "anchor lost"
    COVERED = "covered"
    FLUSH = "flush"
    DETACH = "detach"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which an exit reaches a machine: an event, with the outcome of its decision (None: of none)."""

    event: str
    outcome: IntEnum | None = None


CLOCK = Way("the clock of the state")
"""Stands for the event that the state's own deadline fires, whatever it decides."""

CLAIM_GOES = Way("drop")
"""The last claimant leaves a hold: because it ended, or because a visit saw that the span is of no use to it."""

WAYS: Mapping[tuple[str, Exit], tuple[Way, ...]] = {
    ("request", Exit.ABORT): (Way("abort"),),
    ("request", Exit.FINISH): (Way("finish"),),
    ("request", Exit.RETRACT): (Way("retract"),),
    ("request", Exit.DEADLINE): (CLOCK, Way("hold_ended", HoldEnd.EXPIRED)),
    ("request", Exit.STORE_ERROR): (
        Way("issue", Launch.STORE_OPEN), Way("due", Launch.STORE_OPEN), Way("answer", Answer.MISS),
        Way("hold_ended", HoldEnd.FAILED), Way("hold_ended", HoldEnd.EXPIRED),
    ),
    ("request", Exit.SHORT_DELIVERY): (
        Way("answer", Answer.BELOW_THRESHOLD), Way("hold_ended", HoldEnd.FAILED),
        Way("commit", Commit.PARTIAL), Way("commit", Commit.NOTHING), Way("commit", Commit.UNFIT),
    ),
    ("request", Exit.ANCHOR_LOST): (
        Way("evaluate", Evaluate.LOST), Way("hold_ended", HoldEnd.LOST), Way("admit", StillCovered.SHRUNK),
    ),
    ("request", Exit.COVERED): (
        Way("issue", Launch.TOO_SHORT), Way("due", Launch.TOO_SHORT), Way("evaluate", Evaluate.COVERED),
        Way("hold_ended", HoldEnd.COVERED), Way("hold_ended", HoldEnd.SPLICED),
    ),
    ("request", Exit.FLUSH): (Way("hold_ended", HoldEnd.DROPPED), Way("admit", StillCovered.SHRUNK)),
    ("request", Exit.DETACH): (
        Way("issue", Launch.CAP), Way("due", Launch.CAP), Way("answer", Answer.MISS),
        Way("hold_ended", HoldEnd.DROPPED),
    ),
    ("request", Exit.SHUTDOWN): (Way("abort"),),
    ("hold", Exit.ABORT): (CLAIM_GOES,),
    ("hold", Exit.DEADLINE): (CLOCK,),
    ("hold", Exit.STORE_ERROR): (Way("io_commit", IoCommit.STORE_OPEN), Way("fetched", Fetched.NOTHING)),
    ("hold", Exit.SHORT_DELIVERY): (
        Way("fetched", Fetched.HEAD), Way("fetched", Fetched.NOTHING), Way("unplan"), CLAIM_GOES,
    ),
    ("hold", Exit.ANCHOR_LOST): (Way("io_commit", IoCommit.LOST), CLAIM_GOES),
    ("hold", Exit.COVERED): (Way("io_commit", IoCommit.COVERED), CLAIM_GOES, Way("load")),
    ("hold", Exit.FLUSH): (CLAIM_GOES,),
    ("hold", Exit.DETACH): (CLAIM_GOES,),
    ("hold", Exit.SHUTDOWN): (CLAIM_GOES, Way("loaded"), Way("io_ended")),
}  # fmt: skip
"""How each exit reaches each machine. A hold knows of no finish and no retraction: who runs has no claim."""

REFUSED = "refused"
LOCKED = "locked: cannot"

BARRED: Mapping[tuple[str, Exit], Mapping[IntEnum, str]] = {
    ("request", Exit.FLUSH): {RequestState.ANCHOR_LOCKED: REFUSED, RequestState.COMMITTED: REFUSED},
    ("hold", Exit.FLUSH): {HoldState.PLANNED: REFUSED, HoldState.LOADING: REFUSED},
    ("request", Exit.DETACH): {RequestState.ANCHOR_LOCKED: REFUSED},
    ("hold", Exit.DETACH): {HoldState.PLANNED: REFUSED},
    ("request", Exit.ANCHOR_LOST): {RequestState.ANCHOR_LOCKED: LOCKED, RequestState.COMMITTED: LOCKED},
    ("hold", Exit.ANCHOR_LOST): {HoldState.PLANNED: LOCKED},
}
"""Where an exit cannot come: the engine refuses the call, or the visitor's lock keeps the tree as it is."""

ONLY: Mapping[tuple[str, Exit], Mapping[IntEnum, tuple[Way, ...]]] = {
    ("hold", Exit.SHORT_DELIVERY): {
        HoldState.PARKED: (),
        HoldState.FETCHING: (Way("fetched", Fetched.HEAD), Way("fetched", Fetched.NOTHING)),
        HoldState.READY: (),
    },
    ("hold", Exit.COVERED): {HoldState.PLANNED: (Way("load"),)},
}
"""Cells in which only these ways occur, though the rows would allow more: a claimant leaves over a short delivery
only from within its visit, and what is planned is spliced, however little of it is missing by then."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one exit does in one state: the rows that it may take, or why it cannot come (`barred`)."""

    rows: tuple[Row, ...]
    barred: str = ""

    def ends(self, spec: MachineSpec) -> tuple[IntEnum, ...]:
        """The states that it may lead to, each once; passing states are followed to what comes behind them."""
        return tuple(dict.fromkeys(end for row in self.rows for end in _behind(spec, row.target)))


def _behind(spec: MachineSpec, state: IntEnum) -> Iterator[IntEnum]:
    """The state itself, or where a passing one goes by itself."""
    if spec.state(state).kind is not Kind.PASSING:
        yield state
        return
    for row in spec.rows:
        if row.source is state:
            yield row.target


def states(spec: MachineSpec) -> list[State]:
    """The states that an exit can find an instance in: neither over nor passing."""
    return [state for state in spec.states if state.kind not in (Kind.TERMINAL, Kind.PASSING)]


def cell(spec: MachineSpec, state: State, exit_: Exit) -> Cell:
    """What `exit_` does to an instance in `state`."""
    here = (spec.name, exit_)
    barred = BARRED.get(here, {}).get(state.name, "")
    if barred:
        return Cell((), barred)
    ways = ONLY.get(here, {}).get(state.name, WAYS.get(here, ()))
    return Cell(tuple(row for way in ways for row in _rows(spec, state, way)))


def _rows(spec: MachineSpec, state: State, way: Way) -> Iterator[Row]:
    clock = state.deadline.event if state.deadline is not None else None
    for row in spec.expanded():
        if row.source is not state.name:
            continue
        if way is CLOCK:
            if row.event == clock:
                yield row
        elif (row.event, row.outcome) == (way.event, way.outcome):
            yield row


def page(digest: str) -> str:
    """The matrix as Markdown; `digest` is the hash of the declarations."""
    parts = [
        "# Exits",
        f"<!-- Generated from the declarations by `stagehold diagram`; declaration {digest} -->",
        "What each exit does in each state that is neither terminal nor passing. A dash: nothing happens to it there.",
    ]
    for spec in (REQUEST, HOLD):
        parts += [f"## {spec.name}", _matrix(spec)]
    return "\n\n".join(parts) + "\n"


def _matrix(spec: MachineSpec) -> str:
    lines = [
        (f"**{labels.word(state.name)}**", *(_text(spec, cell(spec, state, exit_)) for exit_ in Exit))
        for state in states(spec)
    ]
    return table(("", *Exit), lines)


def _text(spec: MachineSpec, here: Cell) -> str:
    if here.barred:
        return here.barred
    ways: dict[str, list[str]] = {}
    for row in here.rows:
        ends = " or ".join(labels.word(end) for end in Cell((row,)).ends(spec))
        ways.setdefault(ends, []).append(row.event if row.outcome is None else row.outcome.name)
    return "<br>".join(f"{ends} ({', '.join(dict.fromkeys(by))})" for ends, by in ways.items()) or "-"
