"""What each kind of state must comply with.

Owns these rules only; `checks` runs them once all names are known to be good. The words for events that these
rules rely on are part of the declaration language: an abort is called abort, drop, close, halt or delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from stagehold.machines.declared import rows_of
from stagehold.machines.findings import Problem, Rule, kept, listed, wrong_row, wrong_state
from stagehold.specs.declare import Decision, Kind, Life, MachineSpec, Row, State

ABORTS = ("abort", "drop", "close", "halt", "delete")
COMMITS = ("commit", "load")
GIVE_BACKS = ("release", "unplan")
LENT_WAYS = ("finish", "retract", "abort")
IO, STAGING = "io", "staging"
IO_ENDS = ("fetched", "copied", "put_ended", "loaded", "io_ended")


def rows_from(spec: MachineSpec, state: State) -> list[Row]:
    """The rows that leave `state`, those that come back to it at once included."""
    return [row for row in rows_of(spec) if row.source is state.name]


def terminal(spec: MachineSpec) -> Iterator[Problem]:
    """The end owns nothing and has no way on."""
    for state in spec.states:
        if state.kind is not Kind.TERMINAL:
            continue
        if state.owns:
            says = f"is terminal but owns {listed(state.owns)}; release it on the rows that lead here"
            yield wrong_state(Rule.TERMINAL, spec, state, says)
        for row in rows_from(spec, state):
            yield wrong_row(Rule.TERMINAL, spec, row, "leaves a terminal state; remove it, or give the state a kind")


def deadline(spec: MachineSpec) -> Iterator[Problem]:
    """A waiting state names a limit and has the row that fires at it, or delegates; no other has a clock."""
    for state in spec.states:
        if state.kind is not Kind.WAITING:
            if state.deadline is not None or state.delegate is not None:
                says = f"is {state.kind.value} but has a deadline or delegate; make it waiting, or take them off"
                yield wrong_state(Rule.DEADLINE, spec, state, says)
        elif state.deadline is None and state.delegate is None:
            says = 'waits without a limit; write deadline=("<limit>", "<event>"), or delegate="<machine>"'
            yield wrong_state(Rule.DEADLINE, spec, state, says)
        elif state.deadline is not None:
            event = state.deadline.event
            if not any(row.event == event for row in rows_from(spec, state)):
                says = f'no row fires at its deadline; write row(S.{state.name.name}, "{event}", ...)'
                yield wrong_state(Rule.DEADLINE, spec, state, says)


def delegate(spec: MachineSpec, machines: Sequence[MachineSpec]) -> Iterator[Problem]:
    """Who waits on another machine's limits hears of each of its ends."""
    for state in spec.states:
        if state.delegate is None:
            continue
        other = next((machine for machine in machines if machine.name == state.delegate), None)
        if other is None:
            says = f"delegates to {state.delegate!r}, which is no machine; write the name of one"
            yield wrong_state(Rule.DELEGATE, spec, state, says)
            continue
        ends = [end.name.name for end in other.states if end.kind is Kind.TERMINAL]
        if not any(list(asked.outcomes.__members__) == ends for asked in _asked(spec, state)):
            told = f"no event tells it how {other.name} ended"
            says = f"{told}; declare a decision whose outcomes are {', '.join(ends)}"
            yield wrong_state(Rule.DELEGATE, spec, state, says)


def _asked(spec: MachineSpec, state: State) -> list[Decision]:
    return [decision for decision in spec.decisions if decision.state is state.name]


def abort(spec: MachineSpec) -> Iterator[Problem]:
    """Every state can be told to stop, and then ends or waits for its IO; a flying one stays by nature."""
    for state in spec.states:
        if state.kind in (Kind.TERMINAL, Kind.FLYING):
            continue
        stops = [row for row in rows_from(spec, state) if row.event in ABORTS]
        if not stops:
            says = f'cannot be aborted; write row(S.{state.name.name}, "abort", ...), or make it flying'
            yield wrong_state(Rule.ABORT, spec, state, says)
        for row in stops:
            if spec.state(row.target).kind not in (Kind.TERMINAL, Kind.FLYING):
                says = "an abort must lead to a terminal or a flying state; change its target"
                yield wrong_row(Rule.ABORT, spec, row, says)


def kind(spec: MachineSpec) -> Iterator[Problem]:
    """The duties of resting, passing, visit, lent and flying states."""
    for state in spec.states:
        if state.kind is Kind.RESTING:
            yield from _resting(spec, state)
        elif state.kind is Kind.PASSING:
            yield from _passing(spec, state)
        elif state.kind is Kind.VISIT:
            yield from _visit(spec, state)
        elif state.kind is Kind.LENT:
            missing = set(LENT_WAYS) - {row.event for row in rows_from(spec, state)}
            if missing:
                yield wrong_state(Rule.KIND, spec, state, f"is lent but has no row for {listed(missing)}; write it")
        elif state.kind is Kind.FLYING:
            yield from _flying(spec, state)


def _resting(spec: MachineSpec, state: State) -> Iterator[Problem]:
    if spec.life is Life.FINITE and state.owns:
        says = f"rests but owns {listed(state.owns)}, which others may wait for; release it, or make it waiting"
        yield wrong_state(Rule.KIND, spec, state, says)
    if all(row.event in ABORTS for row in rows_from(spec, state)):
        yield wrong_state(Rule.KIND, spec, state, "rests with no way on but abort; write a row for the caller")


def _passing(spec: MachineSpec, state: State) -> Iterator[Problem]:
    """What a passing state owns was owned before; nothing is taken to be held for no time at all."""
    if all(row.event in ABORTS for row in rows_from(spec, state)):
        yield wrong_state(Rule.KIND, spec, state, "is passing but never left in its cascade; write the row that does")
    for row in rows_of(spec):
        if row.target is state.name and row.takes:
            says = f"takes {listed(row.takes)} into a passing state; take it on the row that leaves it"
            yield wrong_row(Rule.KIND, spec, row, says)


def _visit(spec: MachineSpec, state: State) -> Iterator[Problem]:
    """Commit, release, abort and no other; release gives back what the visit took, to where it came from."""
    rows = rows_from(spec, state)
    for row in rows:
        if row.event not in (*COMMITS, *GIVE_BACKS, *ABORTS):
            ways_out = ", ".join((*COMMITS, *GIVE_BACKS))
            says = f"a visit is left by {ways_out} or an abort; rename or remove the row"
            yield wrong_row(Rule.KIND, spec, row, says)
    for ways in (COMMITS, GIVE_BACKS):
        if not any(row.event in ways for row in rows):
            yield wrong_state(Rule.KIND, spec, state, f"is a visit without a row on {' or '.join(ways)}; write one")
    origins = [row.source for row in rows_of(spec) if row.target is state.name]
    for row in rows:
        if row.event in GIVE_BACKS and row.target not in origins:
            says = "gives the visit back to a state that it did not come from; change its target"
            yield wrong_row(Rule.KIND, spec, row, says)
        elif row.event in GIVE_BACKS:
            took = kept(state) - kept(spec.state(row.target))
            if row.takes or kept(state) - took != kept(spec.state(row.target)):
                says = f"giving back gives back {listed(took)} alone; take nothing and release no more"
                yield wrong_row(Rule.KIND, spec, row, says)


def _flying(spec: MachineSpec, state: State) -> Iterator[Problem]:
    if IO not in state.owns:
        yield wrong_state(Rule.KIND, spec, state, "flies without owning io; take the ticket on the rows that lead here")
    for row in rows_from(spec, state):
        if IO not in row.releases or row.event not in IO_ENDS:
            ends = ", ".join(IO_ENDS)
            says = f"a flying state is left by the end of its IO alone; release io, on one of {ends}"
            yield wrong_row(Rule.KIND, spec, row, says)


def io(spec: MachineSpec) -> Iterator[Problem]:
    """A buffer under IO is freed by the end of that IO, whatever happened to the caller.

    The one exception hands ticket and tail on: the machine has a birth in a flying state, and the row gives
    up the ticket while it keeps staging (a cut that keeps the verified head).
    """
    hands_on = any(spec.state(birth).kind is Kind.FLYING for birth in spec.births)
    for row in rows_of(spec):
        assert isinstance(row.source, IntEnum)  # `rows_of` has written out every `ANY`
        if IO not in spec.state(row.source).owns:
            continue
        if STAGING in row.releases and IO not in row.releases:
            says = "frees staging while its IO still uses it; keep staging, and go to a flying state"
            yield wrong_row(Rule.IO, spec, row, says)
        if IO in row.releases and row.event not in IO_ENDS and (STAGING in row.releases or not hands_on):
            says = f"gives up io on {row.event!r}, which ends no IO; go to a flying state and wait for io_ended"
            yield wrong_row(Rule.IO, spec, row, says)
