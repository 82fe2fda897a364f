"""Every cell of the exits matrix, run: an engine is brought to the state, the exit comes, and nothing is left over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import pytest

from stagehold import Misuse, PartialDelivery
from stagehold.machines.exits import REFUSED, Exit, cell, states
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.request import REQUEST, RequestState
from stagehold.testing.places import ANCHOR, SPAN, Place, bring

R, H = RequestState, HoldState
VISITS = (R.ANCHOR_LOCKED, H.PLANNED)
Act = Callable[[Place], object]


# What comes of itself wherever an exit changes nothing, or has one way only


def finish(p: Place) -> None:
    """Only who runs can finish; to a hold it means that somebody else does."""
    ends_well(p, "finish")


def retract(p: Place) -> None:
    ends_well(p, "retract")


def ends_well(p: Place, call: str) -> None:
    alive = p.hand.engine._roster.alive.get("a")
    if alive is not None and alive.state is not R.COMMITTED:
        with pytest.raises(Misuse, match="only a committed request runs"):
            getattr(p.hand.engine, call)(p.a)
    elif alive is not None:
        getattr(p.hand.engine, call)(p.a)


def time_passes(p: Place) -> None:
    """Past every limit; a visit ends in its pass, so that a tick is refused."""
    if p.hand.core.visits:
        with pytest.raises(Misuse, match="visits are open"):
            p.hand.tick()
        return
    p.hand.tick(200)


def short(p: Place) -> None:
    p.empty_store()


def shrinks(p: Place) -> None:
    p.hand.shrink(p.hand.prompt(SPAN), 0)


def grows(p: Place) -> None:
    p.hand.grow(p.hand.prompt(SPAN), SPAN)


def faults(p: Place) -> None:
    p.trip()


def closes(p: Place) -> None:
    p.copies.free = True
    p.hand.engine.close()


PLAIN: dict[Exit, Act] = {
    Exit.ABORT: lambda p: p.leave() if "a" in p.hand.engine._roster.alive else None,
    Exit.FINISH: finish,
    Exit.RETRACT: retract,
    Exit.DEADLINE: time_passes,
    Exit.STORE_ERROR: faults,
    Exit.SHORT_DELIVERY: short,
    Exit.ANCHOR_LOST: shrinks,
    Exit.COVERED: grows,
    Exit.FLUSH: lambda p: p.hand.engine.flush(),
    Exit.DETACH: lambda p: p.hand.engine.detach(),
    Exit.SHUTDOWN: closes,
}


# What needs more than the exit itself: a tick that notices, a visit that looks, a circumstance that decides


def then_tick(act: Act, ticks: int = 1) -> Act:
    def both(p: Place) -> None:
        act(p)
        p.hand.tick(ticks)

    return both


def then_visit(act: Act) -> Act:
    def both(p: Place) -> None:
        act(p)
        p.hand.visit(p.a)

    return both


def then_look_again(act: Act) -> Act:
    def both(p: Place) -> None:
        act(p)
        p.look_again()

    return both


def fails(p: Place) -> None:
    """The operation in flight fails at its first page."""
    p.hand.store._failing[p.hand.store.in_flight()[-1]] = 0
    p.hand.tick()


def stalls(p: Place) -> None:
    p.hand.store.stall()
    p.hand.tick(30)


def trickles(p: Place) -> None:
    """A page a tick, until the limit falls."""
    p.hand.store.limit(1)
    p.hand.tick(5)


def gives(pages: int | None) -> Act:
    """The visit's commit delivers so much."""

    def commit(p: Place) -> None:
        p.gives.upto = pages
        try:
            p.hand.engine.commit(p.plan)
        except PartialDelivery:
            assert pages

    return commit


def gives_nothing_where_nothing_fits(p: Place) -> None:
    p.hand.core.reserved += p.hand.core.room()
    try:
        gives(0)(p)
    finally:
        p.hand.core.reserved = sum(m.data.reserve for m in p.hand.core.requests.values())


def asks_elsewhere(p: Place) -> None:
    """Lookups are rationed, and another request has the only one."""
    p.hand.store.stall()
    p.hand.arrive("other", p.hand.prompt(SPAN, 9))
    p.hand.tick(9)


@dataclass(frozen=True, slots=True)
class Case:
    """What happens, and how the engine got there: its options, what is there before, a way of its own."""

    act: Act
    before: Act | None = None
    way: Act | None = None
    settings: dict[str, object] = field(default_factory=dict)


def with_sibling(p: Place) -> None:
    p.hand.grow(p.hand.prompt(SPAN), ANCHOR)
    p.hand.arrive("sibling", p.hand.prompt(SPAN))


def half_a_store(p: Place) -> None:
    p.empty_store(ANCHOR + 1)


def full_staging(p: Place) -> None:
    """Another fetch has so much of it that nobody else is launched."""
    p.hand.put(p.hand.prompt(SPAN, 2))
    p.hand.arrive("other", p.hand.prompt(SPAN, 2))
    p.hand.tick(2)
    p.hand.store.stall()


def expired(p: Place) -> None:
    """In `retry`, and the end is known."""
    p.ready()
    p.hand.tick(5)


PATIENT = {"lookup_limit": 150, "fetch_limit": 400}

SPECIAL: dict[tuple[str, Exit, str], Case] = {}


def key(state: IntEnum, exit_: Exit, end: IntEnum | None) -> tuple[str, Exit, str]:
    """Members of two enums may be equal, so their names go by text."""
    return repr(state), exit_, repr(end)


def at(state: IntEnum, exit_: Exit, end: IntEnum | None, act: Act, **options: Any) -> None:
    before, way = options.pop("before", None), options.pop("way", None)
    SPECIAL[key(state, exit_, end)] = Case(act, before, way, options)


# request
at(R.QUEUED, Exit.DEADLINE, None, time_passes, before=full_staging, staging_pages=SPAN)
at(R.QUEUED, Exit.STORE_ERROR, R.RETRY, then_tick(faults))
at(R.QUEUED, Exit.COVERED, R.COVERED, then_tick(grows))
at(R.QUEUED, Exit.DETACH, R.CAPPED, then_tick(PLAIN[Exit.DETACH]))
at(R.LOOKUP, Exit.DEADLINE, R.RETRY, stalls, lookup_limit=10)
at(R.LOOKUP, Exit.STORE_ERROR, R.RETRY, fails)
at(R.LOOKUP, Exit.SHORT_DELIVERY, R.RETRY, lambda p: p.hand.tick(), before=half_a_store)
at(R.LOOKUP, Exit.DETACH, R.RETRY, then_tick(PLAIN[Exit.DETACH]), before=short)
at(R.STAGED, Exit.DEADLINE, R.RETRY, stalls, fetch_limit=10)
at(R.STAGED, Exit.STORE_ERROR, R.RETRY, fails)
at(R.STAGED, Exit.SHORT_DELIVERY, R.RETRY, then_tick(short))
at(R.STAGED, Exit.ANCHOR_LOST, R.RETRY, then_visit(shrinks))
at(R.STAGED, Exit.ANCHOR_LOST, R.CAPPED, then_visit(shrinks), retry_max_reissues=0)
at(R.STAGED, Exit.COVERED, R.COVERED, then_visit(grows))
at(R.ANCHOR_LOCKED, Exit.SHORT_DELIVERY, R.CAPPED, gives(SPAN - 1))
at(R.ANCHOR_LOCKED, Exit.SHORT_DELIVERY, R.COMMITTED, gives(0))
at(R.ANCHOR_LOCKED, Exit.SHORT_DELIVERY, R.RETRY, gives_nothing_where_nothing_fits)
at(R.COVERED, Exit.ANCHOR_LOST, R.RETRY, then_visit(shrinks))
at(R.COVERED, Exit.FLUSH, R.RETRY, then_visit(PLAIN[Exit.FLUSH]))
at(R.RETRY, Exit.DEADLINE, R.LOOKUP, lambda p: p.hand.tick(8))
at(R.RETRY, Exit.DEADLINE, R.STAGED, lambda p: p.hand.tick(8), way=expired, ready_limit=5)
at(R.RETRY, Exit.DEADLINE, R.COVERED, then_tick(grows, 8))
at(R.RETRY, Exit.DEADLINE, R.RETRY, asks_elsewhere, query_limit=1)
at(R.RETRY, Exit.DEADLINE, R.CAPPED, lambda p: p.hand.tick(8), retry_max_reissues=0)
at(R.RETRY, Exit.STORE_ERROR, R.RETRY, then_tick(faults, 8))
at(R.RETRY, Exit.COVERED, R.COVERED, then_tick(grows, 8))

# hold
at(H.PARKED, Exit.DEADLINE, H.EXPIRED, time_passes, park_limit=10, **PATIENT)
at(H.PARKED, Exit.STORE_ERROR, H.EXPIRED, then_tick(faults))
at(H.PARKED, Exit.ANCHOR_LOST, H.LOST, then_look_again(shrinks))
at(H.PARKED, Exit.ANCHOR_LOST, H.DROPPED, then_visit(shrinks))
at(H.PARKED, Exit.COVERED, H.COVERED, then_look_again(grows))
at(H.PARKED, Exit.COVERED, H.DROPPED, then_visit(grows))
at(H.FETCHING, Exit.DEADLINE, H.READY, trickles, fetch_limit=4)
at(H.FETCHING, Exit.DEADLINE, H.DRAINING, stalls, fetch_limit=10)
at(H.FETCHING, Exit.STORE_ERROR, H.FAILED, fails)
at(H.FETCHING, Exit.SHORT_DELIVERY, H.READY, then_tick(lambda p: p.empty_store(SPAN - 2)))
at(H.FETCHING, Exit.SHORT_DELIVERY, H.FAILED, then_tick(short))
at(H.FETCHING, Exit.ANCHOR_LOST, H.DRAINING, then_visit(shrinks))
at(H.FETCHING, Exit.COVERED, H.DRAINING, then_visit(grows))
at(H.READY, Exit.DEADLINE, H.EXPIRED, lambda p: p.hand.tick(10), ready_limit=10)
at(H.READY, Exit.ANCHOR_LOST, H.DROPPED, then_visit(shrinks))
at(H.READY, Exit.COVERED, H.DROPPED, then_visit(grows))
at(H.PLANNED, Exit.SHORT_DELIVERY, H.READY, gives(SPAN - 1), before=with_sibling)
at(H.PLANNED, Exit.SHORT_DELIVERY, H.DROPPED, gives(SPAN - 1))
at(H.PLANNED, Exit.COVERED, H.LOADING, lambda p: (grows(p), gives(None)(p)))


def cells() -> list[Any]:
    """One case for each end of each cell; the end is None where the state stays, or the exit is refused."""
    found = []
    for spec in (REQUEST, HOLD):
        for state in states(spec):
            for exit_ in Exit:
                ends = cell(spec, state, exit_).ends(spec) or (None,)
                found += [
                    pytest.param(spec, state.name, exit_, end, id=f"{spec.name}-{state.name.name}-{exit_}-{end!r}")
                    for end in ends
                ]
    return found


@pytest.mark.parametrize(("spec", "state", "exit_", "end"), cells())
def test_a_cell_of_the_matrix_is_what_happens(spec: MachineSpec, state: IntEnum, exit_: Exit, end: IntEnum | None):
    """The instance comes to rest where the matrix says, and owns what that state may own; nothing, at the end."""
    this = SPECIAL.get(key(state, exit_, end), Case(PLAIN[exit_]))
    place = bring(spec, state, way=this.way, before=this.before, **this.settings)
    m, since = place.machine(spec), place.records
    if cell(spec, spec.state(state), exit_).barred == REFUSED:
        with pytest.raises(Misuse, match=r"visit is open|committed|load"):
            this.act(place)
    else:
        this.act(place)

    came_to = place.path(spec, m, since)
    assert end is (came_to[0] if came_to else None)
    assert frozenset(spec.state(m.state).owns) == place.hand.core.ledger.owned(m.number)
    leaves_nothing(place)


def leaves_nothing(p: Place) -> None:
    """When everybody has gone and all IO has ended."""
    closes(p)
    core = p.hand.core
    assert {} == p.hand.engine.stats().owned
    assert 0 == p.hand.engine.stats().live_machines
    assert core.device.size == core.device.free_count + core.tree.total
    assert core.staging.size == core.staging.free_count


def test_every_special_case_is_one_of_the_matrix():
    """A cell that changed its end would else be run by nobody."""
    known = {key(*one.values[1:]) for one in cells()}
    assert [] == [name for name in SPECIAL if name not in known]
