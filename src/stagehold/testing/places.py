"""An engine with one request, or one hold, in a given state: where tests of exits begin.

Owns the shortest way there over a simulated store, with a second party only where the state needs one. It decides
nothing that the engine decides, and looks inside to say where things stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from stagehold.lifecycle.data import Handle, HoldData, Plan
from stagehold.lifecycle.visits import deliver_all
from stagehold.machines import Block, Machine, rows_of
from stagehold.specs.declare import Kind, MachineSpec
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.request import REQUEST, RequestState
from stagehold.testing.hand import Hand

SPAN = 8
"""Pages of the prompt; the store has them all."""

ANCHOR = 2
"""Pages of it that the live tree holds at the beginning."""


class HeldCopies:
    """Copies that do not end before `free` is set."""

    def __init__(self) -> None:
        self.free = False
        self._sent: list[int] = []

    def sent(self, number: int, tick: int) -> None:  # noqa: ARG002
        """A copy begins."""
        self._sent.append(number)

    def poll(self, tick: int) -> list[int]:  # noqa: ARG002
        """All copies, once they may end."""
        if not self.free:
            return []
        ended, self._sent = self._sent, []
        return ended


@dataclass(slots=True)
class Gives:
    """What the next commits deliver: pages up to `upto`, or all of the hold where it is None."""

    upto: int | None = None

    def __call__(self, hold: HoldData, live: int, promised: int) -> int:
        """See `stagehold.lifecycle.visits.Deliver`."""
        return deliver_all(hold, live, promised) if self.upto is None else self.upto


@dataclass(slots=True)
class Place:
    """One engine, the request `a` whose fate is watched, and how the store's deliveries and copies are ruled.

    Pins are off, so that an anchor can be lost under a hold. `settings` are options of the engine.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    copies: HeldCopies = field(default_factory=HeldCopies)
    gives: Gives = field(default_factory=Gives)
    hand: Hand = field(init=False)
    a: Handle = field(init=False)
    plan: Plan | None = None

    def __post_init__(self) -> None:
        options = {"sink": self.blocks.append, "copies": self.copies, "deliver": self.gives}
        settings: dict[str, Any] = {"pin_fraction": 0.0, **self.settings}
        self.hand = Hand(engine_options=options, **settings)
        h = self.hand
        h.put(h.prompt(SPAN))

    # Ways there, each from the one before

    def queued(self) -> None:
        """Arrived in this pass."""
        self.hand.grow(self.hand.prompt(SPAN), ANCHOR)
        self.a = self.hand.arrive("a", self.hand.prompt(SPAN))

    def lookup(self) -> None:
        """The store is asked, and answers in the next tick."""
        self.queued()
        self.hand.tick()

    def fetching(self) -> None:
        """The store was asked for all of it, and answers in the next tick."""
        self.lookup()
        self.hand.tick()

    def parked(self) -> None:
        """Another fetch has all of staging; needs `staging_pages=SPAN`."""
        h = self.hand
        h.put(h.prompt(SPAN, 2))
        h.arrive("other", h.prompt(SPAN, 2))
        self.fetching()
        h.store.stall()

    def ready(self) -> None:
        """All of it is in staging."""
        self.fetching()
        self.hand.tick()

    def planned(self) -> None:
        """The visit is open."""
        self.ready()
        self.plan = self.select()

    def loading(self) -> None:
        """Admitted; the copy does not end before `copies.free`."""
        self.ready()
        self.hand.admit(self.a)

    def draining(self) -> None:
        """The claimant has gone, and the store does not answer."""
        self.fetching()
        self.hand.store.stall()
        self.leave()

    def covered(self) -> None:
        """A sibling has computed what was to be fetched; the end is known."""
        self.fetching()
        self.hand.store.stall()
        self.hand.grow(self.hand.prompt(SPAN), SPAN)
        self.hand.engine.release(self.select())

    def retry(self) -> None:
        """The store has nothing."""
        self.empty_store()
        self.fetching()

    def capped(self) -> None:
        """What was fetched was flushed."""
        self.ready()
        self.hand.engine.flush()

    # Acts

    def select(self) -> Plan:
        """A visit, which opens."""
        plan = self.hand.engine.select(self.a, 1000)
        assert isinstance(plan, Plan), plan
        return plan

    def leave(self) -> None:
        """The request is aborted."""
        self.hand.engine.abort(self.a)

    def empty_store(self, first: int = 0) -> None:
        """The store loses pages from `first` on."""
        for name in self.hand.names(self.hand.prompt(SPAN), first):
            self.hand.store.drop(name)

    def trip(self) -> None:
        """As many faults are agreed on as open the breaker."""
        core, phases = self.hand.core, self.hand.engine._parts.phases  # noqa: SLF001
        for _ in range(core.limits.trip_results):
            phases._observe(core.breaker.data.epoch, fault=True)  # noqa: SLF001

    def look_again(self) -> None:
        """The next tick tries parked holds again, as it does whenever something was given back."""
        self.hand.core.news += 1
        self.hand.tick()

    # Where things stand

    def machine(self, spec: MachineSpec) -> Machine:
        """The instance that is watched: the request, or the hold of its span."""
        h = self.hand
        if spec is REQUEST:
            return h.machine(self.a)
        prompt = h.chain(h.prompt(SPAN))
        return next(m for m in h.core.holds.values() if m.data.chain.keys == prompt.keys)

    def path(self, spec: MachineSpec, m: Machine, since: int = 0) -> list[IntEnum]:
        """The states that the instance has entered, passing ones left out, by the log, from record `since` on."""
        journal = self.hand.core.journal
        raw = b"".join(block.records for block in self.blocks) + b"".join(journal.records)
        records = [(raw[at : at + 4], raw[at + 4]) for at in range(0, len(raw), 16)]
        targets = [rows_of(spec)[row].target for tag, row in records[since:] if tag == m.tag]
        return [state for state in targets if spec.state(state).kind is not Kind.PASSING]

    @property
    def records(self) -> int:
        """Records so far."""
        return (sum(len(block.records) for block in self.blocks) // 16) + len(self.hand.core.journal.records) // 2


REQUESTS: dict[RequestState, Callable[[Place], None]] = {
    RequestState.QUEUED: Place.queued,
    RequestState.LOOKUP: Place.lookup,
    RequestState.STAGED: Place.fetching,
    RequestState.ANCHOR_LOCKED: Place.planned,
    RequestState.COVERED: Place.covered,
    RequestState.RETRY: Place.retry,
    RequestState.CAPPED: Place.capped,
    RequestState.COMMITTED: Place.loading,
}
"""The way to each state of *request* that an exit can find it in."""

HOLDS: dict[HoldState, Callable[[Place], None]] = {
    HoldState.PARKED: Place.parked,
    HoldState.FETCHING: Place.fetching,
    HoldState.READY: Place.ready,
    HoldState.PLANNED: Place.planned,
    HoldState.LOADING: Place.loading,
    HoldState.DRAINING: Place.draining,
}
"""The way to each state of *hold*."""


def bring(
    spec: MachineSpec,
    state: IntEnum,
    *,
    way: Callable[[Place], object] | None = None,
    before: Callable[[Place], object] | None = None,
    **settings: Any,
) -> Place:
    """An engine whose watched instance of *request* or *hold* is in `state`; AssertionError where it is not.

    `way` replaces the usual one, `before` comes before it; `settings` are options of the engine.
    """
    tight = {"staging_pages": SPAN} if spec is HOLD and state is HoldState.PARKED else {}
    place = Place({**tight, **settings})
    if before is not None:
        before(place)
    usual = REQUESTS[RequestState(state)] if spec is REQUEST else HOLDS[HoldState(state)]
    (way or usual)(place)
    assert place.machine(spec).state is state
    return place
