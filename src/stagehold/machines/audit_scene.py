"""What is known around a request at each record of a log: who runs, who holds what, how the store stands.

Owns the reading of records as facts; it follows every record and judges none. Memory goes with what is alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stagehold.machines.records import Birth, HandleKey, SpanKey
from stagehold.specs.attachment import ATTACHMENT, AttachmentState
from stagehold.specs.declare import Books, Kind, Row
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Agreed, PutEnded
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.store import STORE, StoreState
from stagehold.specs.write import WRITE

LOW = 0xFFFFFFFF


_OVER = {
    spec.name: tuple(state.name for state in spec.states if state.kind is Kind.TERMINAL)
    for spec in (REQUEST, HOLD, WRITE)
}


class Step(NamedTuple):
    """One record, looked up: `row` is the row taken."""

    tick: int
    number: int
    machine: str
    row: Row
    detail: int

    @property
    def low(self) -> int:
        """The low half of the detail: tokens, mostly."""
        return self.detail & LOW

    @property
    def high(self) -> int:
        """The high half."""
        return self.detail >> 32


@dataclass(slots=True)
class HoldView:
    """A hold that lives: its span [first, last) in pages, who has a claim, and the row that it took last."""

    first: int
    last: int
    state: IntEnum
    since: int
    claims: dict[int, None] = field(default_factory=dict)
    row: Row | None = None
    waited: int = 0
    """Ticks that it had been in the state that `row` left."""
    sibling: int | None = None
    """The request that spliced it."""

    @property
    def pages(self) -> int:
        """Pages of the span."""
        return self.last - self.first


@dataclass(slots=True)
class Scene:
    """The facts after each record; `enter` and `follow` take the log in order."""

    holds: dict[int, HoldView] = field(default_factory=dict)
    claims: dict[int, int] = field(default_factory=dict)
    """Request number to hold number, for those that have a claim."""
    names: dict[int, str] = field(default_factory=dict)
    """Request number to id, for those that are alive."""
    spans: dict[int, SpanKey] = field(default_factory=dict)
    """Write number to span, for those that are alive."""
    requests: int = 0
    running: int = 0
    lookups: int = 0
    hold_pages: int = 0
    page_size: int = 0
    breaker: IntEnum = StoreState.HEALTHY
    breaker_since: int = 0
    link: IntEnum = AttachmentState.DETACHED
    attached: int = 0
    """How many times a store was attached."""
    quarantined: bool = False
    wakes: str = ""
    """What the record just before did that may wake retries: `due` rows that follow it at once."""
    _over: list[int] = field(default_factory=list)

    @property
    def store(self) -> str:
        """The store in use, by the order of attachments; logs do not know its name."""
        return f"store {max(1, self.attached)}"

    def begin(self) -> None:
        """A new block: what ended in the one before is forgotten."""
        for number in self._over:
            self.holds.pop(number, None)
        self._over.clear()
        self.wakes = ""

    def enter(self, tick: int, birth: Birth, machine: str) -> None:
        """An instance of a machine is born."""
        key = birth.key
        if machine == REQUEST.name and isinstance(key, HandleKey):
            self.requests += 1
            self.names[birth.number] = key.rid if key.attempt == 0 else f"{key.rid} #{key.attempt}"
        elif machine == HOLD.name and isinstance(key, SpanKey):
            self.holds[birth.number] = HoldView(key.first, key.last, HoldState(birth.state), tick)
            self.hold_pages += key.last - key.first
        elif machine == WRITE.name and isinstance(key, SpanKey):
            self.spans[birth.number] = key
        elif machine == STORE.name:
            self.breaker, self.breaker_since = StoreState(birth.state), tick

    def follow(self, step: Step) -> None:
        """A row was taken."""
        if step.row.event != "due":
            self.wakes = ""
        if step.machine == REQUEST.name:
            self._request(step)
        elif step.machine == HOLD.name:
            self._hold(step)
        elif step.machine == WRITE.name:
            self._write(step)
        elif step.machine == STORE.name:
            self._breaker(step)
        elif step.machine == ATTACHMENT.name:
            self.attached += step.row.event == "attach"
            self.link = step.row.target
        elif step.row.outcome is Agreed.QUARANTINE:
            self.quarantined = True

    def _request(self, step: Step) -> None:
        row, number = step.row, step.number
        self.running += (row.target is RequestState.COMMITTED) - (row.source is RequestState.COMMITTED)
        self.lookups += (row.target is RequestState.LOOKUP) - (row.source is RequestState.LOOKUP)
        if row.books is Books.QUERIED:
            self._claim(number, step.high, step.low)
        elif "claim" in row.releases:
            hold = self.holds.get(self.claims.pop(number, 0))
            if hold is not None:
                hold.claims.pop(number, None)
                hold.sibling = number if row.books is Books.SPLICED else hold.sibling
        if row.target in _OVER[REQUEST.name]:
            self.names.pop(number, None)

    def _claim(self, number: int, hold_number: int, tokens: int) -> None:
        self.claims[number] = hold_number
        hold = self.holds.get(hold_number)
        if hold is not None:
            hold.claims[number] = None
            if not self.page_size and hold.pages:
                self.page_size = tokens // hold.pages

    def _hold(self, step: Step) -> None:
        hold = self.holds.get(step.number)
        if hold is None:
            return
        row = step.row
        if row.books is Books.LOSS and hold.claims and self.page_size:
            self._shorten(hold, row, step.low // len(hold.claims) // self.page_size)
        hold.row, hold.waited = row, step.tick - hold.since
        if row.target is not row.source:
            hold.state, hold.since = row.target, step.tick
        if row.target in _OVER[HOLD.name]:
            self.hold_pages -= hold.pages
            self._over.append(step.number)

    def _shorten(self, hold: HoldView, row: Row, pages: int) -> None:
        """At IO commit the head goes, which the tree has; later the tail, which did not come."""
        self.hold_pages -= pages
        if row.source is HoldState.PARKED:
            hold.first += pages
        else:
            hold.last -= pages

    def _write(self, step: Step) -> None:
        span = self.spans.get(step.number)
        if step.row.outcome is PutEnded.STORED and span is not None:
            self.wakes = f"right after our own write of pages {span.first} to {span.last} was stored"
        if step.row.target in _OVER[WRITE.name]:
            self.spans.pop(step.number, None)

    def _breaker(self, step: Step) -> None:
        row = step.row
        if row.target is not row.source:
            self.breaker, self.breaker_since = row.target, step.tick
        if row.effect == "recover":
            self.wakes = f"as {self.store} answered again"
