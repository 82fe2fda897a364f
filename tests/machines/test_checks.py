"""Wrong machines: a fault planted in a copy of a table is refused with the sentence that mends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from stagehold.machines import MACHINES, DeclarationError, Rule, check, require, step_bound
from stagehold.machines.rules_rows import layout
from stagehold.specs.declare import Books, Deadline, Kind, Life, MachineSpec, Row
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import Commit, Cut, Evaluate, IoCommit, Launch
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.store import STORE, StoreState
from stagehold.specs.tick import TICK
from stagehold.specs.write import WRITE, WriteState

H, Q, W = HoldState, RequestState, WriteState
Match = tuple[IntEnum | str, str, IntEnum | None]


def found(row: Row, match: Match) -> bool:
    return row.source is match[0] and row.event == match[1] and row.outcome is match[2]


def changed(spec: MachineSpec, match: Match, **update: Any) -> MachineSpec:
    """A copy of `spec` with one row changed."""
    assert sum(found(row, match) for row in spec.rows) == 1
    rows = tuple(row.model_copy(update=update) if found(row, match) else row for row in spec.rows)
    return spec.model_copy(update={"rows": rows})


def without(spec: MachineSpec, match: Match) -> MachineSpec:
    """A copy of `spec` without one row."""
    assert sum(found(row, match) for row in spec.rows) == 1
    return spec.model_copy(update={"rows": tuple(row for row in spec.rows if not found(row, match))})


def with_row(spec: MachineSpec, row: Row) -> MachineSpec:
    return spec.model_copy(update={"rows": (*spec.rows, row)})


def with_state(spec: MachineSpec, name: IntEnum, **update: Any) -> MachineSpec:
    states = tuple(s.model_copy(update=update) if s.name is name else s for s in spec.states)
    return spec.model_copy(update={"states": states})


def row_of(spec: MachineSpec, match: Match) -> Row:
    return next(row for row in spec.rows if found(row, match))


class Sparse(IntEnum):
    """An outcome enum with a hole."""

    A = 0
    B = 2


CUT = (H.FETCHING, "cut", Cut.HOPELESS)
PARKED = (H.PARKED, "io_commit", IoCommit.HEAD_BUSY)
UNFIT = (Q.ANCHOR_LOCKED, "commit", Commit.UNFIT)
DUE = (Q.RETRY, "due", Launch.DECLINED)

FAULTS: list[tuple[str, Rule, Callable[[], MachineSpec], str]] = [
    ("a dropped release", Rule.BALANCE, lambda: changed(REQUEST, UNFIT, releases=("lock",)),
     r"row anchor_locked --commit\[UNFIT\]--> retry: keeps claim, which retry does not own; write it in releases"),
    ("a forgotten take", Rule.BALANCE, lambda: changed(HOLD, (H.PARKED, "io_commit", IoCommit.LOCAL), takes=("pin",)),
     r"lacks staging, which ready owns; write it in takes"),
    ("a release of what is not owned", Rule.BALANCE, lambda: changed(HOLD, (H.READY, "cut", None),
                                                                     releases=("staging", "pin", "io")),
     r"releases io, which it does not own; take it off releases"),
    ("an initial state that owns", Rule.BALANCE, lambda: with_state(REQUEST, Q.QUEUED, owns=("query",)),
     r"is the initial state but owns query; take it on the first row instead"),
    ("a missing outcome", Rule.OUTCOMES, lambda: without(HOLD, PARKED),
     r'0 rows for outcome HEAD_BUSY; write exactly one: row\(S.PARKED, "io_commit", IoCommit.HEAD_BUSY, ...\)'),
    ("an outcome twice", Rule.OUTCOMES, lambda: with_row(HOLD, row_of(HOLD, PARKED)),
     r"2 rows for outcome HEAD_BUSY; write exactly one"),
    ("two rows without a decision", Rule.OUTCOMES, lambda: with_row(HOLD, row_of(HOLD, (H.READY, "plan", None))),
     r"2 rows for one state and event; keep one, or declare a decision"),
    ("an outcome without a decision", Rule.OUTCOMES,
     lambda: REQUEST.model_copy(update={"decisions": REQUEST.decisions[1:]}), r"without a decision; declare Decision"),
    ("an outcome of another enum", Rule.OUTCOMES, lambda: changed(HOLD, PARKED, outcome=Cut.USABLE),
     r"its decision answers with IoCommit; write one of PINNED, NO_ANCHOR"),
    ("an unbounded retry", Rule.CYCLE, lambda: changed(REQUEST, DUE, counts=None),
     r"nothing bounds this cycle \(retry --due\[DECLINED\]--> retry\); write counts=... or clock=..."),
    ("an uncounted launch that finds the end known", Rule.CYCLE,
     lambda: changed(REQUEST, (Q.RETRY, "due", Launch.KNOWN), counts=None), r"nothing bounds this cycle"),
    ("covered and retry that chase each other", Rule.CYCLE,
     lambda: changed(REQUEST, (Q.RETRY, "due", Launch.TOO_SHORT), counts=None), r"covered --admit\[SHRUNK\]--> retry"),
    ("an uncounted release of a visit", Rule.CYCLE,
     lambda: changed(REQUEST, (Q.ANCHOR_LOCKED, "release", None), clock=None), r"nothing bounds this cycle"),
    ("a failed put that is not counted", Rule.CYCLE,
     lambda: changed(WRITE, (W.STORING, "put_ended", WRITE.decisions[3].outcomes(1)), counts=None),
     r"nothing bounds this cycle"),
    ("a clock that its own row starts", Rule.CLOCK,
     lambda: changed(REQUEST, DUE, counts=None, clock="retry_interval_ticks"),
     r"starts clock retry_interval_ticks anew, so it bounds nothing; count the row instead"),
    ("a clock of another state", Rule.CLOCK, lambda: changed(HOLD, PARKED, clock="put_limit"),
     r"clock put_limit does not bound parked; write one of: park_limit"),
    ("a state without abort", Rule.ABORT, lambda: without(HOLD, (H.READY, "drop", None)),
     r'state ready: cannot be aborted; write row\(S.READY, "abort", ...\), or make it flying'),
    ("an abort that goes on", Rule.ABORT, lambda: changed(HOLD, (H.PARKED, "drop", None), target=H.PARKED),
     r"an abort must lead to a terminal or a flying state; change its target"),
    ("a buffer freed at the cut", Rule.IO, lambda: changed(HOLD, CUT, target=H.EXPIRED,
                                                           releases=("pin", "staging", "io")),
     r"gives up io on 'cut', which ends no IO; go to a flying state and wait for io_ended"),
    ("staging freed under its IO", Rule.IO, lambda: changed(HOLD, CUT, releases=("pin", "staging")),
     r"frees staging while its IO still uses it; keep staging, and go to a flying state"),
    ("a terminal state that owns", Rule.TERMINAL, lambda: with_state(HOLD, H.LOST, owns=("pin",)),
     r"state lost: is terminal but owns pin; release it on the rows that lead here"),
    ("a way on from the end", Rule.TERMINAL,
     lambda: with_row(HOLD, Row(source=H.LOST, event="plan", outcome=None, target=H.PARKED, why="no")),
     r"leaves a terminal state"),
    ("a wait without a limit", Rule.DEADLINE, lambda: with_state(HOLD, H.PARKED, deadline=None),
     r'waits without a limit; write deadline=\("<limit>", "<event>"\), or delegate="<machine>"'),
    ("a limit at which nothing fires", Rule.DEADLINE, lambda: without(REQUEST, (Q.LOOKUP, "timeout", None)),
     r'no row fires at its deadline; write row\(S.LOOKUP, "timeout", ...\)'),
    ("a deadline on a resting state", Rule.DEADLINE,
     lambda: with_state(REQUEST, Q.CAPPED, deadline=Deadline(limit="put_limit", event="admit")),
     r"is resting but has a deadline or delegate; make it waiting, or take them off"),
    ("a delegate whose end goes unheard", Rule.DELEGATE,
     lambda: REQUEST.model_copy(update={"decisions": tuple(
         d.model_copy(update={"outcomes": Commit}) if d.event == "hold_ended" else d for d in REQUEST.decisions)}),
     r"no event tells it how hold ended; declare a decision whose outcomes are SPLICED, COVERED"),
    ("a delegate that is no machine", Rule.DELEGATE, lambda: with_state(REQUEST, Q.STAGED, delegate="holder"),
     r"delegates to 'holder', which is no machine"),
    ("a state that nothing enters", Rule.REACHABLE, lambda: without(REQUEST, (Q.COMMITTED, "retract", None)),
     r"state retracted: is never entered; write a row that leads to it, or remove it"),
    ("a state that ends by abort alone", Rule.ENDS, lambda: without(REQUEST, (Q.CAPPED, "admit", None)),
     r"state capped: cannot end but by abort; write a row towards a terminal state"),
    ("a standing machine without a home", Rule.HOME,
     lambda: without(TICK, (TICK.states[6].name, "recorded", None)),
     r"no resting state can be reached from everywhere; write the rows back to one, the machine's home"),
    ("an unknown counter", Rule.NAMES, lambda: changed(REQUEST, DUE, counts="tries"),
     r"counter 'tries' is not declared; add it to counters with the limit that bounds it"),
    ("an unknown limit", Rule.NAMES, lambda: REQUEST.model_copy(update={"counters": {"issues": "issue_cap"}}),
     r"'issue_cap' is no limit; add it to Limits, with its reason"),
    ("a state of another machine", Rule.NAMES, lambda: changed(HOLD, CUT, target=W.DRAINING),
     r"<WriteState.DRAINING: 4> is not declared; add state"),
    ("a counter that nothing moves", Rule.UNUSED, lambda: WRITE.model_copy(update={"counters": {
        "tries": "tries", "waits": "tries"}}), r"counter waits: no row moves it; write counts=..."),
    ("a row without its reason", Rule.UNUSED, lambda: changed(HOLD, CUT, why=" "),
     r"has no reason; write why it is there"),
    ("a claim that enters no book", Rule.BOOKS,
     lambda: changed(REQUEST, (Q.RETRY, "due", Launch.KNOWN), books=Books.NONE),
     r"takes a claim without counting it; write books=Books.QUERIED"),
    ("a claim whose tokens vanish", Rule.BOOKS,
     lambda: changed(REQUEST, (Q.STAGED, "evaluate", Evaluate.LOST), books=Books.NONE),
     r"ends a claim without saying where its tokens went; write books=Books.LOSS"),
    ("resources that nothing moves", Rule.EFFECTS, lambda: changed(HOLD, CUT, effect=None),
     r"moves pin, but nothing does it; name the effect"),
    ("an effect named like a decision", Rule.EFFECTS, lambda: changed(HOLD, CUT, effect="fetched"),
     r"effect 'fetched' is a decision's name, too"),
    ("an effect that is no method", Rule.EFFECTS, lambda: changed(HOLD, CUT, effect="give up"),
     r"effect 'give up' cannot be a method; write a lower-case Python name"),
    ("outcomes with a hole", Rule.LAYOUT,
     lambda: WRITE.model_copy(update={"decisions": (WRITE.decisions[0].model_copy(update={"outcomes": Sparse}),
                                                    *WRITE.decisions[1:])}),
     r"members of Sparse are not 0, 1, 2, ... in order; renumber them"),
    ("a visit with a third way out", Rule.KIND,
     lambda: with_row(HOLD, Row(source=H.PLANNED, event="linger", outcome=None, target=H.READY, why="no")),
     r"a visit is left by commit, load, release, unplan or an abort; rename or remove the row"),
    ("a visit that cannot be given back", Rule.KIND, lambda: without(HOLD, (H.PLANNED, "unplan", None)),
     r"is a visit without a row on release or unplan; write one"),
    ("a flying state that is called back", Rule.KIND,
     lambda: with_row(HOLD, Row(source=H.LOADING, event="drop", outcome=None, target=H.DROPPED, why="no",
                                effect="free", releases=("staging", "io"))),
     r"a flying state is left by the end of its IO alone"),
    ("a lent state that cannot be retracted", Rule.KIND, lambda: without(REQUEST, (Q.COMMITTED, "retract", None)),
     r"is lent but has no row for retract; write it"),
    ("a resting state that owns", Rule.KIND, lambda: with_state(REQUEST, Q.COVERED, owns=("lock",)),
     r"rests but owns lock, which others may wait for; release it, or make it waiting"),
    ("a lock taken into a passing state", Rule.KIND,
     lambda: changed(REQUEST, (Q.STAGED, "hold_ended", REQUEST.decisions[4].outcomes(2)), takes=("lock",)),
     r"takes lock into a passing state; take it on the row that leaves it"),
]  # fmt: skip


@pytest.mark.parametrize("spec", MACHINES, ids=[spec.name for spec in MACHINES])
def test_the_declared_machines_have_no_problem(spec: MachineSpec) -> None:
    """All seven pass every rule."""
    assert check(spec) == []


@pytest.mark.parametrize(("rule", "plant", "says"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_refused_with_the_sentence_that_mends_it(
    rule: Rule, plant: Callable[[], MachineSpec], says: str
) -> None:
    """The rule is the right one, and the message says what to write."""
    with pytest.raises(DeclarationError, match=says) as raised:
        require(plant())
    assert rule in {problem.rule for problem in raised.value.problems}


def test_every_rule_refuses_some_planted_fault() -> None:
    """A rule that nothing can break is no rule."""
    assert {fault[1] for fault in FAULTS} == set(Rule)


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_a_machine_has_as_many_rows_as_a_record_has_room_for(more: int, refused: bool) -> None:
    """255, since the last number says that an event was refused."""
    one = TICK.rows[0]
    rows = (one.model_copy(update={"event": f"event {number}"}) for number in range(255 + more))
    problems = list(layout(TICK.model_copy(update={"rows": tuple(rows)})))

    assert refused == any("rows, but a record has room for 255" in str(problem) for problem in problems)


def test_a_waived_rule_is_not_raised_and_the_others_are() -> None:
    """The lab runs a baseline with rows that are refused by name."""
    spec = changed(changed(REQUEST, DUE, counts=None), UNFIT, releases=("lock",))
    require(changed(REQUEST, DUE, counts=None), waive=["cycle"])
    with pytest.raises(DeclarationError) as raised:
        require(spec, waive=[Rule.CYCLE])
    assert {problem.rule for problem in raised.value.problems} == {Rule.BALANCE}


def test_waiving_an_unknown_rule_is_an_error() -> None:
    """A misspelt waiver must not pass silently."""
    with pytest.raises(ValueError, match="no such rule: cycles; there are: names"):
        require(REQUEST, waive=["cycles"])


def test_wrong_names_are_reported_alone() -> None:
    """Nothing else can be said before they are mended."""
    spec = changed(changed(REQUEST, DUE, counts="tries"), UNFIT, releases=("lock",))
    assert {problem.rule for problem in check(spec)} == {Rule.NAMES}


def test_every_problem_is_listed_and_not_only_the_first() -> None:
    """Mending a table takes one run."""
    spec = without(without(HOLD, (H.READY, "drop", None)), PARKED)
    with pytest.raises(DeclarationError) as raised:
        require(spec)
    assert {problem.rule for problem in raised.value.problems} == {Rule.ABORT, Rule.OUTCOMES}
    assert str(raised.value).count("\n") == len(raised.value.problems)


def test_a_wrong_machine_fails_at_import_of_the_package() -> None:
    """The checks are not something that one has to remember to run."""
    plant = (
        "import stagehold.specs.hold as hold\n"
        "hold.HOLD = hold.HOLD.model_copy(update={'rows': hold.HOLD.rows[1:]})\n"
        "import stagehold.machines\n"
    )
    run = subprocess.run([sys.executable, "-c", plant], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "0 rows for outcome PINNED; write exactly one" in run.stderr


@pytest.mark.parametrize(("spec", "stretch"), [(REQUEST, 6), (HOLD, 5), (WRITE, 5)], ids=["request", "hold", "write"])
def test_the_longest_run_of_rows_that_bound_nothing_is_known(spec: MachineSpec, stretch: int) -> None:
    """Found by an independent search of the same tables."""
    bound = step_bound(spec, Limits())
    assert bound is not None
    assert bound.stretch == stretch


def test_the_step_bound_grows_with_the_limits_of_its_counters_and_clocks() -> None:
    """stretch + (stretch + 1) x (counted rows + repeats on clocks)."""
    limits = Limits(retry_max_reissues=1, max_staged_admission_defers=1, ready_limit=2)
    bound = step_bound(REQUEST, limits)
    assert bound is not None
    assert (bound.counters, bound.clocks) == ({"issues": 2, "defers": 1}, {"ready_limit": 2})
    assert bound.repeats == 3 + 4 * 2
    assert bound.steps == 6 + 7 * 11


def test_a_standing_machine_has_no_step_bound() -> None:
    """It lives as long as the engine."""
    assert step_bound(STORE, Limits()) is None


def test_kinds_and_lives_are_what_the_rules_rely_on() -> None:
    """A standing machine may cycle without counting; the same rows of a finite one may not."""
    assert Rule.CYCLE in {problem.rule for problem in check(STORE.model_copy(update={"life": Life.FINITE}))}
    assert STORE.state(StoreState.CLOSED).kind is Kind.TERMINAL
