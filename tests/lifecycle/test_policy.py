"""Machines in place of ours: what may change, what must stay, and that a rule is broken only where it is named."""

from __future__ import annotations

import pytest

from stagehold import Engine, EngineConfig, Machines, Misuse
from stagehold.machines import MACHINES, DeclarationError, Rule, declaration_hash
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Launch
from stagehold.specs.request import REQUEST, RequestState


def changed(spec, at, **fields):
    rows = [r.model_copy(update=fields) if (r.source, r.event, r.outcome) == at else r for r in spec.rows]
    return spec.model_copy(update={"rows": tuple(rows)})


DUE = (RequestState.RETRY, "due", Launch.DECLINED)
UNBOUNDED = changed(REQUEST, DUE, counts=None)


def test_without_changes_they_are_ours():
    """The very same declarations, and the hash that all other logs have."""
    assert all(ours is theirs for ours, theirs in zip(MACHINES, Machines().specs, strict=True))
    assert declaration_hash() == Machines().declaration


def test_a_broken_rule_is_named_or_refused():
    """By what the checks say of it, with the row."""
    with pytest.raises(DeclarationError, match=r"nothing bounds this cycle.*\[cycle\]"):
        Machines(changed=(UNBOUNDED,))
    assert Machines(changed=(UNBOUNDED,), waive=(Rule.CYCLE,)).of("request") is UNBOUNDED


def test_a_rule_that_holds_is_not_waived():
    """What is waived is what is broken."""
    with pytest.raises(ValueError, match="waives deadline, and no changed machine breaks it"):
        Machines(changed=(UNBOUNDED,), waive=(Rule.CYCLE, Rule.DEADLINE))


@pytest.mark.parametrize(
    "update",
    [
        {"states": REQUEST.states[::-1]},
        {"rows": REQUEST.rows[1:]},
        {"rows": (REQUEST.rows[1], REQUEST.rows[0], *REQUEST.rows[2:])},
        {"decisions": REQUEST.decisions[:-1]},
        {"counters": {"issues": "issue_limit"}},
        {"initial": RequestState.RETRY},
    ],
)
def test_records_stay_readable(update):
    """States, rows by what leads to them, decisions and counters keep their places."""
    with pytest.raises(ValueError, match="so that its records stay readable"):
        Machines(changed=(REQUEST.model_copy(update=update),), waive=tuple(Rule))


def test_what_there_is_not_is_told():
    """A machine, a decision, an effect by the wrong name; and what is no `Machines`."""
    with pytest.raises(ValueError, match="no machine is called 'hole'; there are: request, hold"):
        Machines(changed=(HOLD.model_copy(update={"name": "hole"}),))
    with pytest.raises(ValueError, match=r"no decision or effect is called 'hold\.fech'; .*hold\.fetch,"):
        Machines(functions={"hold.fech": lambda *_: None})
    config = EngineConfig(device_pages=8, staging_pages=8, largest_request_tokens=64)
    with pytest.raises(Misuse, match="expected machines to be of Machines"):
        Engine(config, machines=MACHINES)


def test_a_function_stands_in_for_a_decision_and_can_ask_it(hand):
    """Every launch is declined, whatever ours says of it; the rows that are taken are those of its answer."""
    asked = []

    def launch(acts, own, m, arg):
        asked.append((own(m, arg), acts.running, acts.config.page_size))
        return Launch.CAP if m.issues else Launch.LOOKUP

    h = hand(engine_options={"machines": Machines(functions={"request.launch": launch})})
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RequestState.CAPPED)
    assert [(Launch.LOOKUP, 0, 16)] * len(asked) == asked
    assert 2 == len(asked)
    assert 1 == h.taken("request.retry.due.CAP")


def test_a_function_stands_in_for_an_effect(hand):
    """The record has what it returns."""
    held = []

    def fetch(acts, own, m, arg):
        held.append((acts.span(m), acts.resident(m), acts.is_ready(m)))
        return own(m, arg)

    h = hand(engine_options={"machines": Machines(functions={"hold.fetch": fetch})})
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens)
    h.tick()
    h.until(lambda: getattr(h.visit(a), "admitted", False))
    assert [((3, 8), 3, False)] == held


def test_states_are_counted_by_the_machines_that_ran(hand):
    """Figures and books follow the rows of this engine, and not of others."""
    to_expired = changed(HOLD, (HoldState.READY, "drop", None), target=HoldState.EXPIRED)
    h = hand(engine_options={"machines": Machines(changed=(to_expired,))})
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.until(lambda: h.machine(a).data.hold and h.hold_of(a).state is HoldState.READY)
    h.engine.abort(a)
    h.tick()
    entries = h.engine.stats().state_entries
    assert (1, 0) == (entries["hold.expired"], entries.get("hold.dropped", 0))
