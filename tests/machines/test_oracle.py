"""Compiled steps and `transitions` agree in every cell, and the library's traps are switched off."""

from __future__ import annotations

import pytest
import transitions
from transitions.extensions.markup import MarkupMachine

from stagehold.machines import MACHINES, HandleKey, Journal, Refused, bind, rows_of
from stagehold.machines import oracle as oracles
from stagehold.machines.compile import stepper_of
from stagehold.machines.oracle import (
    FaceMachine,
    Oracle,
    OracleDifference,
    Probe,
    Token,
    cells,
    compare,
    compare_all,
    oracle_machine,
    shadowed,
)
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Launch, Taken
from stagehold.specs.request import REQUEST, RequestState

KEY = HandleKey("r", 0, b"")


class Echo:
    """Decisions answer with the argument; effects do nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda m, arg: arg


class Nothing:
    def __getattr__(self, name: str) -> object:
        return lambda m, arg: None


def stepper(spec: MachineSpec, *, strict: bool = True) -> object:
    return bind(spec, decisions=Echo(), effects=Nothing(), journal=Journal(), arm=None, strict=strict)


def test_step_face_and_oracle_agree_in_every_cell_of_every_machine() -> None:
    """Every state, event and outcome of the seven machines: state, answer, effect, counters, record, clock."""
    compared = compare_all()
    assert [one.machine for one in compared] == [spec.name for spec in MACHINES]
    assert [one.differences for one in compared] == [()] * len(MACHINES)
    assert sum(one.cells for one in compared) > 500
    assert [len(list(cells(spec))) for spec in MACHINES] == [one.cells for one in compared]


def test_the_cells_are_all_pairs_of_state_and_event_and_all_outcomes() -> None:
    """Nothing is sampled: each row is one cell, and each undeclared pair is one."""
    for spec in MACHINES:
        found = list(cells(spec))
        assert {cell.row for cell in found} - {None} == set(range(len(rows_of(spec))))
        assert {(cell.state, cell.event) for cell in found} == {
            (state.name, event) for state in spec.states for event in spec.events()
        }
        assert len(found) == len({(cell.state, cell.event, repr(cell.answer)) for cell in found})


def test_a_step_that_goes_elsewhere_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison would see a fault in the generated text."""
    real = oracles.bind
    astray = HOLD.model_copy(
        update={
            "rows": tuple(
                row.model_copy(update={"target": HOLD.states[2].name}) if row.event == "drop" else row
                for row in HOLD.rows
            )
        }
    )

    def wrong(spec: MachineSpec, *, journal: Journal, **more: object) -> object:
        return real(astray, journal=Journal(machines=(astray,)), **more)

    monkeypatch.setattr(oracles, "bind", wrong)
    assert any("drop" in difference for difference in compare(HOLD).differences)


def test_the_oracle_refuses_what_no_row_allows() -> None:
    """An undeclared pair and an answer without a row both lead nowhere."""
    oracle = Oracle(REQUEST)
    assert oracle.target(RequestState.QUEUED, "finish", None) is None
    assert oracle.target(RequestState.QUEUED, "issue", None) is None
    assert oracle.target(RequestState.QUEUED, "issue", Launch.CAP) is RequestState.CAPPED


def test_the_oracle_machine_has_no_shortcuts_and_no_state_of_its_own() -> None:
    """Two defaults of the library, switched off."""
    machine = oracle_machine(REQUEST)
    assert not [name for name in machine.events if name.startswith("to_")]
    assert list(machine.states) == [state.name.name for state in REQUEST.states]
    assert machine.initial == "QUEUED"


def test_a_refusal_of_the_oracle_machine_is_an_error_and_never_true() -> None:
    """With a queue the library would answer True."""
    machine = oracle_machine(REQUEST)
    assert machine.has_queue is False
    token = Token("QUEUED")
    with pytest.raises(transitions.MachineError):
        machine.events["finish"].trigger(token)
    assert machine.events["issue"].trigger(token, None) is False
    assert token.state == "QUEUED"


def test_the_oracle_machine_has_no_callbacks_that_could_raise_after_the_move() -> None:
    """A half-done transition needs a callback."""
    machine = oracle_machine(REQUEST)
    for event in machine.events.values():
        for moves in event.transitions.values():
            for move in moves:
                assert (move.prepare, move.before, move.after) == ([], [], [])
    assert all(not state.on_enter and not state.on_exit for state in machine.states.values())


def test_guards_are_plain_booleans() -> None:
    """The library compares them with True, so a merely true answer would refuse."""
    guards = [
        condition.func
        for event in oracle_machine(REQUEST).events.values()
        for moves in event.transitions.values()
        for move in moves
        for condition in move.conditions
    ]
    assert guards
    assert {guard(Launch.LOOKUP) for guard in guards} | {guard() for guard in guards} <= {True, False}


def test_no_model_is_registered_with_either_machine() -> None:
    """Registered models are kept alive, and equal ones vanish."""
    assert oracle_machine(REQUEST).models == []
    face = FaceMachine(stepper(REQUEST))
    assert face.models == []
    with pytest.raises(TypeError, match=r"call face.events\[name\].trigger\(m, arg\)"):
        face.add_model(object())


def test_an_oracle_machine_of_an_extension_gives_markup() -> None:
    """Tools that know the library can read the declared machines."""
    markup = oracle_machine(REQUEST, MarkupMachine).markup
    assert len(markup["transitions"]) == len(rows_of(REQUEST))


def test_the_face_triggers_the_compiled_step_with_its_record() -> None:
    """The usual call, the same answer, the same record."""
    journal = Journal()
    step = bind(REQUEST, decisions=Echo(), effects=Nothing(), journal=journal, arm=None, strict=True)
    face = FaceMachine(step)
    m = step.birth(None, KEY)
    assert face.events["issue"].trigger(m, Launch.LOOKUP) is Launch.LOOKUP
    assert (m.state, m.issues, len(journal.records)) == (RequestState.LOOKUP, 1, 2)


def test_the_face_answers_introspection_in_the_library_s_own_words() -> None:
    """Triggers of a state, transitions of an event, the state of an instance."""
    face = FaceMachine(stepper(REQUEST))
    assert set(face.get_triggers(RequestState.CAPPED)) == {"admit", "abort"}
    assert {move.dest for move in face.get_transitions("answer")} == {"STAGED", "RETRY"}
    assert face.get_state(RequestState.CAPPED).name == "CAPPED"


def test_a_shadowed_stepper_takes_the_same_steps() -> None:
    """Beside a live run, and without a trace in it."""
    step = shadowed(stepper(REQUEST, strict=False))
    m = step.birth(None, KEY)
    assert step.issue(m, Launch.LOOKUP) is Launch.LOOKUP
    assert step.finish(m) is Taken.REFUSED
    assert step.abort(m) is Taken.TAKEN
    assert m.state is RequestState.ABORTED


def test_a_shadowed_stepper_still_refuses_in_strict_mode() -> None:
    """The refusal is agreed on, and raised as before."""
    step = shadowed(stepper(REQUEST))
    with pytest.raises(Refused):
        step.finish(step.birth(None, KEY))


def test_a_shadowed_step_that_leads_elsewhere_stops_the_run() -> None:
    """The difference names the cell and both states."""
    right = stepper(REQUEST)
    methods = {event: lambda _, m, arg=None, step=step: step(m, arg) for event, step in right.steps.items()}
    methods["abort"] = methods["admit"]
    wrong = shadowed(stepper_of(REQUEST, right.source, methods, right.birth, {}))
    with pytest.raises(OracleDifference, match=r"'abort'.*step .*COMMITTED: 8>, oracle .*ABORTED"):
        wrong.abort(wrong.birth(None, KEY))


def test_a_probe_notes_effects_and_clocks_in_order() -> None:
    """What a comparison compares."""
    probe = Probe()
    assert probe.note("ask")(None, None) == 7
    probe.arm(None, HOLD.states[0].deadline)
    assert probe.seen == ["ask", "arm park_limit"]
