"""What a declaration is made of: states, rows, decisions, machines.

This module owns the shape of a declaration and nothing else. It runs no machine and checks no meaning:
`stagehold.machines` does both, once, at import. A declaration is outside data, hence frozen pydantic models.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum, StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ANY = "*"
"""As a row's source: every state that is not terminal. As its releases: all that the source owns."""


class Kind(StrEnum):
    """What a state asks of its machine; `stagehold.machines.checks` refuses a machine that does not comply."""

    RESTING = "resting"
    WAITING = "waiting"
    PASSING = "passing"
    VISIT = "visit"
    LENT = "lent"
    FLYING = "flying"
    TERMINAL = "terminal"


class Life(StrEnum):
    """FINITE machines must end; STANDING ones live as long as the engine and need a home state."""

    FINITE = "finite"
    STANDING = "standing"


class Books(StrEnum):
    """How a record's 64-bit detail enters the token ledger (low and high are its 32-bit halves)."""

    NONE = "none"
    QUERIED = "queried"  # low: tokens of a claim that opens; high: the instance number of its hold
    SPLICED = "spliced"  # low: tokens loaded; high: tokens of the claim that the tree had by then (loss: covered)
    LOSS = "loss"  # low: tokens; high: the number of a `Loss` member


class Declared(BaseModel):
    """Base of all declarations: frozen, closed, and holding enum members as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Deadline(Declared):
    """The named limit (ticks, from `limits.py`) of a waiting state and the event that fires when it has run out."""

    limit: str
    event: str


class State(Declared):
    """One state. `delegate` names the machine that bounds the wait where the state has no deadline of its own."""

    name: IntEnum
    kind: Kind
    doc: str
    owns: tuple[str, ...] = ()
    deadline: Deadline | None = None
    delegate: str | None = None
    elsewhere: str = ""  # the name SGLang's HiCache uses for this, where it has one


class Row(Declared):
    """One row: in `source`, on `event`, with `outcome` of the decision, go to `target`.

    `counts` names a counter of the instance that moves by one and is bounded by a limit of the machine.
    `clock` names the limit that bounds a row which repeats without moving a counter.
    """

    source: IntEnum | str
    event: str
    outcome: IntEnum | None
    target: IntEnum
    why: str
    effect: str | None = None
    takes: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    counts: str | None = None
    clock: str | None = None
    books: Books = Books.NONE


class Decision(Declared):
    """A pure look at live facts, asked in `state` on `event`; answers with one member of `outcomes`."""

    state: IntEnum
    event: str
    name: str
    outcomes: type[IntEnum]


class MachineSpec(Declared):
    """One declared machine. `counters` maps each counter to the name of the limit that bounds it."""

    name: str
    one_per: str
    doc: str
    life: Life
    initial: IntEnum
    states: tuple[State, ...]
    decisions: tuple[Decision, ...] = ()
    rows: tuple[Row, ...] = Field(min_length=1)
    counters: dict[str, str] = Field(default_factory=dict)
    births: tuple[IntEnum, ...] = ()
    """States besides `initial` in which an instance may be born (the tail of a cut fetch is born draining)."""
    sparse: bool = False
    """Only some of its rows are recorded, so that a record may begin in any state that is not terminal."""

    def __hash__(self) -> int:
        """By name: the counters are a dict, and equal machines have equal names."""
        return hash(self.name)

    def state(self, name: Enum) -> State:
        """The declaration of state `name`; KeyError where there is none."""
        for state in self.states:
            if state.name is name:
                return state
        raise KeyError(f"machine {self.name!r} declares no state {name!r}")

    def expanded(self) -> Iterator[Row]:
        """All rows, those from `ANY` written out once for each state that is not terminal."""
        for row in self.rows:
            if row.source != ANY:
                yield row
                continue
            for state in self.states:
                if state.kind is not Kind.TERMINAL:
                    releases = state.owns if row.releases == (ANY,) else row.releases
                    yield row.model_copy(update={"source": state.name, "releases": releases})

    def events(self) -> tuple[str, ...]:
        """All events in the order of their first row; the position is part of the audit layout."""
        return tuple(dict.fromkeys(row.event for row in self.rows))

    def legal_moves(self) -> dict[tuple[IntEnum, str, IntEnum | None], IntEnum]:
        """(source, event, outcome) to target, for those who assert moves against the rows without stepping them."""
        moves = {}
        for row in self.expanded():
            assert isinstance(row.source, IntEnum)  # `expanded` has written out every `ANY`
            moves[row.source, row.event, row.outcome] = row.target
        return moves


def names(text: str) -> tuple[str, ...]:
    """`"lock, slots"` as a tuple; the empty string as none."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def state(name: IntEnum, kind: Kind, doc: str, owns: str = "", **more: Any) -> State:
    """A state in table form: `owns` is a comma-separated text, `deadline` a pair (limit, event)."""
    deadline = more.pop("deadline", None)
    if deadline is not None:
        more["deadline"] = Deadline(limit=deadline[0], event=deadline[1])
    return State(name=name, kind=kind, doc=doc, owns=names(owns), **more)


def row(source: IntEnum | str, event: str, outcome: IntEnum | None, target: IntEnum, why: str, **more: Any) -> Row:
    """A row in table form: `takes` and `releases` are comma-separated texts."""
    for key in ("takes", "releases"):
        more[key] = names(more.get(key, ""))
    return Row(source=source, event=event, outcome=outcome, target=target, why=why, **more)
