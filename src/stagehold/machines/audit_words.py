"""Records and births in words, for messages, differences and timelines.

Owns the wording only. It never fails on a record that names nothing: such a record is said in numbers.
"""

from __future__ import annotations

from stagehold.machines import labels
from stagehold.machines.declared import rows_of
from stagehold.machines.records import REFUSED_FLAG, Birth, BirthKey, HandleKey
from stagehold.specs.declare import Books, MachineSpec, Row
from stagehold.specs.outcomes import Decline, Loss

LOW = 0xFFFFFFFF
"""The low half of a detail; the high one is what is above it."""

Record = tuple[int, int, int, int]
"""instance, row word, flags, detail: an item of `Block.table().tolist()`."""


def row_of(record: Record, machines: tuple[MachineSpec, ...]) -> tuple[MachineSpec, Row] | None:
    """The machine and row that a record took; None for a refusal, or where it names none."""
    machine, index = record[1] >> 8, record[1] & 0xFF
    if machine >= len(machines) or index >= len(rows_of(machines[machine])):
        return None
    return machines[machine], rows_of(machines[machine])[index]


def event(record: Record, machines: tuple[MachineSpec, ...]) -> str:
    """The event, with its decision and outcome where there was one; a refused event is said to be so."""
    found = row_of(record, machines)
    if found is not None:
        return labels.trigger(*found)
    refused = refusal(record, machines)
    return f"row word {record[1]:#06x}" if refused is None else f"{refused[1]} (refused)"


def refusal(record: Record, machines: tuple[MachineSpec, ...]) -> tuple[str, str] | None:
    """State and event of a refused record; None where it is none, or names none."""
    machine, (state, place) = record[1] >> 8, divmod(record[3], 256)
    if not record[2] & REFUSED_FLAG or machine >= len(machines):
        return None
    spec = machines[machine]
    known = [labels.word(s.name) for s in spec.states if int(s.name) == state]
    return (known[0], spec.events()[place]) if known and place < len(spec.events()) else None


def describe(record: Record, machines: tuple[MachineSpec, ...]) -> str:
    """A whole record: from where, on what, to where, with what detail."""
    found, refused = row_of(record, machines), refusal(record, machines)
    if found is None:
        return f"{refused[0] if refused else f'detail {record[3]}'}, {event(record, machines)}"
    source, target = labels.source(found[1]), labels.word(found[1].target)
    told = detail(*found, record[3])
    return f"{source}, {event(record, machines)} → {target}" + (f", {told}" if told else "")


def detail(spec: MachineSpec, row: Row, value: int) -> str:
    """A taken row's detail, as its books read it, or else its effect."""
    low, high = value & LOW, value >> 32
    if row.books is Books.QUERIED:
        return f"{low} tokens queried of hold {high}"
    if row.books is Books.SPLICED:
        return f"{low} tokens spliced, {high} covered"
    if row.books is Books.LOSS and high < len(Loss):
        return f"{low} tokens lost ({Loss(high).name.lower()})" if low else "no token lost"
    if (spec.name, row.effect) == ("request", "decline") and value < len(Decline):
        return Decline(value).name.lower().replace("_", " ")
    words = _DETAILS.get((spec.name, row.effect), f"detail {value}")
    return words.format(low=low, high=high) if value else ""


_PROMPT = "{low} of {high} prompt tokens live"
_DETAILS: dict[tuple[str, str | None], str] = {
    ("request", "plan"): _PROMPT,
    ("request", "admit"): _PROMPT,
    ("request", "admit_unanswered"): _PROMPT,
    ("request", "miss"): "{low} tokens found",
    ("request", "unlock"): "{low} tokens put off",
    ("hold", "verified"): "{low} tokens verified",
    ("write", "enqueue"): "{low} tokens",
    ("write", "refuse"): "{low} tokens",
    ("write", "copy"): "{low} tokens gone meanwhile",
    ("write", "stored"): "{low} tokens",
    ("write", "back_off"): "{low} tokens stored before it failed",
    ("write", "unqueue"): "{low} tokens",
    ("write", "give_up"): "{low} tokens",
    ("write", "keep"): "{low} tokens",
    ("write", "let_drain"): "{low} tokens",
}
"""What the details of effects that book nothing mean."""


def plain(text: str) -> str:
    """A name from a log as a terminal may be given it: what would move its cursor is spelt out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def key(named: BirthKey) -> str:
    """A birth's key: request id and attempt, or the span of pages."""
    if isinstance(named, HandleKey):
        return f"{plain(named.rid)} #{named.attempt}"
    return f"pages {named.first} to {named.last} of …{named.last_key.hex()[-8:]}"


def born(birth: Birth, machines: tuple[MachineSpec, ...]) -> str:
    """A birth: machine, number, key and first state."""
    if birth.machine >= len(machines):
        return f"machine {birth.machine}, instance {birth.number} ({key(birth.key)})"
    spec = machines[birth.machine]
    states = [labels.word(s.name) for s in spec.states if int(s.name) == birth.state]
    state = states[0] if states else f"state {birth.state}"
    return f"{spec.name} {birth.number} ({key(birth.key)}) born in {state}"
