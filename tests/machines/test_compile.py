"""The compiled step: what it returns, what it refuses, and that it does all of a row or nothing."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from stagehold.machines import (
    MACHINES,
    BadDetail,
    BindError,
    HandleKey,
    Journal,
    Machine,
    MovedByEffect,
    NotAnOutcome,
    Refused,
    Stepper,
    arms,
    bind,
    instance_class,
    rows_of,
)
from stagehold.machines.oracle import shadowed
from stagehold.machines.records import REFUSED_ROW, rest, tag
from stagehold.specs.declare import MachineSpec, Row
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Answer, Fetched, Launch, Offer, Taken
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.residency import RESIDENCY
from stagehold.specs.write import WRITE, WriteState

KEY = HandleKey("r", 0, b"ns")


class Answers:
    """Decisions that answer with the argument of the step."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda m, arg: arg


class Effects:
    """Effects that do as told: return `result`, or raise it; the names called are kept."""

    def __init__(self, result: object = None) -> None:
        self.result, self.called = result, []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def effect(m: Machine, arg: Any) -> Any:
            self.called.append(name)
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

        return effect


class Boom(Exception):
    pass


def bound(spec: MachineSpec, effects: object = None, strict: bool = True, **more: Any) -> Stepper:
    given = {"journal": Journal(), "arm": lambda m, deadline: None, **more}
    return bind(spec, decisions=Answers(), effects=effects or Effects(), strict=strict, **given)


def put(spec: MachineSpec, state: IntEnum) -> Machine:
    """An instance in `state`, without the way that leads there."""
    m = instance_class(spec)()
    m.number, m.tag, m.state, m.data = 0, tag(0), state, None
    for counter in spec.counters:
        setattr(m, counter, 0)
    return m


def all_rows() -> list[Any]:
    return [
        pytest.param(spec, row, id=f"{spec.name}-{index}")
        for spec in MACHINES
        for index, row in enumerate(rows_of(spec))
    ]


def test_a_decided_row_returns_the_outcome_and_moves_state_and_counter() -> None:
    """The answer of the decision is the answer of the step."""
    step = bound(REQUEST)
    m = step.birth("payload", KEY)
    assert step.issue(m, Launch.LOOKUP) is Launch.LOOKUP
    assert (m.state, m.issues, m.defers, m.data) == (RequestState.LOOKUP, 1, 0, "payload")


def test_a_row_without_decision_returns_taken() -> None:
    """There is nothing else to say."""
    step = bound(REQUEST)
    assert step.admit(put(REQUEST, RequestState.CAPPED)) is Taken.TAKEN


def test_fire_takes_the_same_step_by_name() -> None:
    """The generic way is the same function."""
    step = bound(REQUEST)
    assert step.fire(step.birth(None, KEY), "issue", Launch.CAP) is Launch.CAP


def test_an_event_that_no_row_has_is_a_lookup_error_that_lists_the_events() -> None:
    """A misspelt event cannot pass as a refusal."""
    step = bound(REQUEST)
    with pytest.raises(LookupError, match="has no event 'isue'; it has: issue, admit"):
        step.fire(step.birth(None, KEY), "isue")


def test_a_refused_event_raises_with_both_names_in_strict_mode() -> None:
    """Strict mode names machine, state and event."""
    step = bound(REQUEST)
    with pytest.raises(Refused, match=r"'request' has no row for event 'finish' in state <RequestState\.QUEUED: 0>"):
        step.finish(step.birth(None, KEY))


def test_a_refused_event_is_a_record_and_a_typed_answer_otherwise() -> None:
    """Row 0xFF, flag 1, and state and event in the detail; the instance stays where it was."""
    journal = Journal()
    step = bound(REQUEST, strict=False, journal=journal)
    m = put(REQUEST, RequestState.RETRY)
    assert step.finish(m) is Taken.REFUSED
    assert m.state is RequestState.RETRY
    event = REQUEST.events().index("finish")
    assert journal.records == [tag(0), rest(0, REFUSED_ROW, 1, RequestState.RETRY << 8 | event)]


@pytest.mark.parametrize(("spec", "row"), all_rows())
def test_an_effect_that_raises_leaves_state_counters_journal_and_clock_alone(spec: MachineSpec, row: Row) -> None:
    """All or nothing, in every effect of every machine; a row without effect is simply taken."""
    armed: list[Any] = []
    journal = Journal()
    effects = Effects(Boom())
    step = bound(spec, effects, journal=journal, arm=lambda m, deadline: armed.append(deadline))
    m = put(spec, row.source)
    if row.effect is None:
        step.fire(m, row.event, row.outcome)
        assert m.state is row.target
        return
    with pytest.raises(Boom):
        step.fire(m, row.event, row.outcome)
    assert effects.called == [row.effect]
    assert m.state is row.source
    assert [getattr(m, counter) for counter in spec.counters] == [0] * len(spec.counters)
    assert (journal.records, armed) == ([], [])


@pytest.mark.parametrize(("spec", "row"), all_rows())
def test_a_clock_is_armed_exactly_when_the_row_says_so(spec: MachineSpec, row: Row) -> None:
    """The clock that is armed is the deadline of the state that is entered."""
    armed: list[Any] = []
    step = bound(spec, arm=lambda m, deadline: armed.append((m.state, deadline)))
    step.fire(put(spec, row.source), row.event, row.outcome)
    expected = [(row.target, spec.state(row.target).deadline)] if arms(spec, row) else []
    assert armed == expected


def rows(spec: MachineSpec, source: IntEnum, event: str) -> list[Row]:
    return [row for row in rows_of(spec) if row.source is source and row.event == event]


@pytest.mark.parametrize(
    ("spec", "source", "event", "outcome", "expected"),
    [
        (REQUEST, RequestState.QUEUED, "issue", "LOOKUP", True),
        (REQUEST, RequestState.RETRY, "due", "DECLINED", True),
        (REQUEST, RequestState.ANCHOR_LOCKED, "commit", "UNFIT", True),
        (HOLD, HoldState.PARKED, "io_commit", "PIN_FULL", False),
        (HOLD, HoldState.PLANNED, "unplan", None, False),
        (HOLD, HoldState.FETCHING, "fetched", "WHOLE", True),
        (WRITE, WriteState.OFFERED, "offer", "QUEUE", True),
        (WRITE, WriteState.QUEUED, "start", "BLOCKED", False),
        (WRITE, WriteState.STORING, "put_ended", "FAILED", True),
    ],
)
def test_clocks_start_on_entry_and_not_on_coming_back(
    spec: MachineSpec, source: IntEnum, event: str, outcome: str | None, expected: bool
) -> None:
    """Self loops and visits that go back leave the clock running; a row fired by its own deadline starts it anew."""
    (row,) = [row for row in rows(spec, source, event) if getattr(row.outcome, "name", None) == outcome]
    assert arms(spec, row) is expected


def test_every_waiting_state_with_a_limit_is_timed_however_it_is_entered() -> None:
    """From the birth of any instance on, no way into such a state leaves it without a running clock."""
    for spec in MACHINES:
        for row in rows_of(spec):
            if spec.state(row.target).deadline is None or arms(spec, row) or row.source is row.target:
                continue
            came_from_there = [
                back for back in rows_of(spec) if back.source is row.target and back.target is row.source
            ]
            assert came_from_there, f"{spec.name}: {row.source!r} to {row.target!r} leaves no clock running"


def test_a_birth_in_a_waiting_state_arms_its_clock_and_is_recorded() -> None:
    """A parked hold waits from its first moment."""
    armed: list[Any] = []
    journal = Journal()
    step = bound(HOLD, journal=journal, arm=lambda m, deadline: armed.append(deadline.limit))
    m = step.birth(None, KEY)
    assert (armed, m.number) == (["park_limit"], 0)
    assert [(birth.number, birth.machine, birth.state) for birth in journal.births] == [(0, 1, HoldState.PARKED)]


def test_an_instance_may_be_born_in_a_declared_birth_state_and_in_no_other() -> None:
    """The tail of a cut fetch is born draining; nothing is born ready."""
    step = bound(HOLD)
    assert step.birth(None, KEY, HoldState.DRAINING).state is HoldState.DRAINING
    with pytest.raises(ValueError, match="is not born in"):
        step.birth(None, KEY, HoldState.READY)


def test_an_answer_that_is_no_member_is_refused_before_the_effect() -> None:
    """An equal integer or a member of another enum is no answer."""
    effects = Effects()
    step = bound(REQUEST, effects)
    for answer in (0, Offer.QUEUE, None, True):
        with pytest.raises(NotAnOutcome, match="must be a member of Launch"):
            step.issue(step.birth(None, KEY), answer)
    assert effects.called == []


def test_an_effect_that_moves_its_own_instance_is_an_error_in_strict_mode() -> None:
    """The outer step would overwrite what the inner one did."""

    class Again(Effects):
        def ask(self, m: Machine, arg: Any) -> None:
            step.abort(m)

    step = bound(REQUEST, Again())
    with pytest.raises(
        MovedByEffect, match="'ask' of machine 'request' moved its own instance 0 from QUEUED to ABORTED"
    ):
        step.issue(step.birth(None, KEY), Launch.LOOKUP)


@pytest.mark.parametrize("detail", [-1, 1 << 64, "tokens", 1.5])
def test_a_detail_that_does_not_fit_is_refused_before_the_state_moves(detail: object) -> None:
    """The effect is named, and the step has not happened."""
    step = bound(REQUEST, Effects(detail))
    m = step.birth(None, KEY)
    with pytest.raises(BadDetail, match="effect 'ask' of machine 'request'"):
        step.issue(m, Launch.LOOKUP)
    assert m.state is RequestState.QUEUED


def test_binding_names_every_decision_and_effect_that_is_missing() -> None:
    """All at once, not one after the other."""

    class Nothing:
        pass

    with pytest.raises(BindError, match=r"decision offer\(m, arg\), .*effect enqueue\(m, arg\)"):
        bind(WRITE, decisions=Nothing(), effects=Nothing(), journal=Journal(), arm=None, strict=True)


def test_decisions_and_effects_are_looked_up_once_at_bind() -> None:
    """A step costs no attribute lookup of an owner's name."""

    class Counting(Answers):
        asked = 0

        def __getattr__(self, name: str) -> Callable[..., Any]:
            Counting.asked += 1
            return super().__getattr__(name)

    step = bind(REQUEST, decisions=Counting(), effects=Effects(), journal=Journal(), arm=None, strict=True)
    before = Counting.asked
    step.issue(step.birth(None, KEY), Launch.LOOKUP)
    assert Counting.asked == before


def test_two_engines_bind_the_same_machine_and_do_not_meet() -> None:
    """Each stepper calls its own effects and its own journal."""
    ours, theirs = Effects(), Effects()
    journals = Journal(), Journal()
    first, second = bound(REQUEST, ours, journal=journals[0]), bound(REQUEST, theirs, journal=journals[1])
    first.issue(first.birth(None, KEY), Launch.LOOKUP)
    assert (ours.called, theirs.called) == (["ask"], [])
    assert (len(journals[0].records), len(journals[1].records)) == (2, 0)
    assert second.birth(None, KEY).number == 0


def test_an_engine_that_is_dropped_is_collected_with_its_steppers() -> None:
    """No registry keeps what was bound."""
    effects = Effects()
    alive = weakref.ref(effects)
    step = bound(REQUEST, effects)
    step.issue(step.birth(None, KEY), Launch.LOOKUP)
    del effects, step
    gc.collect()
    assert alive() is None


def test_a_stepper_that_is_released_lets_go_at_once() -> None:
    """Its class waits for the collector; what was bound does not."""
    effects = Effects()
    alive = weakref.ref(effects)
    step = bound(REQUEST, effects)
    shadow = shadowed(bound(REQUEST, effects))
    gc.disable()
    try:
        step.unbind()
        shadow.unbind()
        del effects, step, shadow
        assert alive() is None
    finally:
        gc.enable()


def test_a_released_stepper_steps_no_more() -> None:
    """Neither by method nor by name."""
    step = bound(REQUEST)
    m = step.birth(None, KEY)
    step.unbind()
    assert not hasattr(step, "issue")
    with pytest.raises(LookupError):
        step.fire(m, "issue")


def test_an_instance_dies_with_its_last_user_without_the_collector() -> None:
    """It is in no reference cycle and registered nowhere."""

    class Payload:
        pass

    payload = Payload()
    alive = weakref.ref(payload)
    step = bound(REQUEST)
    gc.disable()
    try:
        m = step.birth(payload, KEY)
        step.issue(m, Launch.LOOKUP)
        del payload, m
        assert alive() is None
    finally:
        gc.enable()


def test_no_event_but_a_birth_is_hidden_by_a_method_of_every_stepper() -> None:
    """Callers name events as methods; one that a stepper's own method hides would be called in its place."""
    assert {"birth"} == {event for spec in MACHINES for event in spec.events() if hasattr(Stepper, event)}


def test_an_instance_takes_at_most_200_bytes_and_has_no_dict() -> None:
    """The object, its number and its tag, for every machine."""
    for spec in MACHINES:
        m = bound(spec).birth(None, KEY)
        assert not hasattr(m, "__dict__")
        assert sys.getsizeof(m) + sys.getsizeof(1 << 30) + sys.getsizeof(m.tag) <= 200


def test_without_a_journal_nothing_is_recorded_and_numbers_still_ascend() -> None:
    """The tick's own pass is stepped so."""
    step = bound(REQUEST, journal=None)
    assert [step.birth(None, KEY).number for _ in range(3)] == [0, 1, 2]
    assert "records" not in step.source.partition("def on_issue")[2]


def test_the_generated_source_is_shown_in_a_traceback() -> None:
    """Who debugs a step sees its row."""
    step = bound(REQUEST, Effects(Boom()))
    with pytest.raises(Boom) as raised:
        step.issue(step.birth(None, KEY), Launch.LOOKUP)
    assert "detail = effect_ask(m, arg)" in str(raised.getrepr())


def test_an_event_named_like_a_method_of_the_stepper_is_reached_by_fire() -> None:
    """Residency has an event `birth`; the stepper's own birth stays."""
    step = bound(RESIDENCY)
    m = step.birth(None, KEY)
    assert step.fire(m, "birth", RESIDENCY.decisions[0].outcomes(0)) == 0


def test_an_outcome_is_found_by_identity_and_not_by_order_of_the_rows() -> None:
    """Every member of an enum leads to its own row."""
    step = bound(REQUEST)
    reached = {answer: put(REQUEST, RequestState.LOOKUP) for answer in Answer}
    for answer, m in reached.items():
        step.answer(m, answer)
    assert [m.state.name for m in reached.values()] == ["STAGED", "RETRY", "RETRY"]


def test_a_hold_goes_from_hit_to_splice() -> None:
    """The longest way of a hold, state by state."""
    step = bound(HOLD)
    m = step.birth(None, KEY)
    way = [("io_commit", HOLD.decisions[0].outcomes(0)), ("fetched", Fetched.WHOLE), ("plan", None), ("load", None)]
    seen = []
    for event, answer in [*way, ("loaded", None)]:
        step.fire(m, event, answer)
        seen.append(m.state.name)
    assert seen == ["FETCHING", "READY", "PLANNED", "LOADING", "SPLICED"]
