"""The exits matrix says what was agreed on: a copy by hand, in words, held against what the rows give."""

from __future__ import annotations

import pytest

from stagehold.machines import exits
from stagehold.machines.exits import Exit, cell, states
from stagehold.specs.hold import HOLD
from stagehold.specs.request import REQUEST

STAYS: set[str] = set()
NO = {"refused"}
CANNOT = {"locked: cannot"}
ANY_LAUNCH = {"lookup", "staged", "covered", "retry", "capped"}

COLUMNS = ("abort", "finish", "retract", "deadline", "store error", "short delivery", "anchor lost", "covered",
           "flush", "detach", "shutdown")  # fmt: skip

AGREED: dict[str, dict[str, tuple[set[str], ...]]] = {
    "request": {
        "queued": ({"aborted"}, STAYS, STAYS, STAYS, {"retry"}, STAYS, STAYS, {"covered"},
                   STAYS, {"capped"}, {"aborted"}),
        "lookup": ({"aborted"}, STAYS, STAYS, {"retry"}, {"retry"}, {"retry"}, STAYS, STAYS,
                   STAYS, {"retry"}, {"aborted"}),
        "staged": ({"aborted"}, STAYS, STAYS, {"retry"}, {"retry"}, {"retry"}, {"retry", "capped"}, {"covered"},
                   {"capped"}, {"capped"}, {"aborted"}),
        "anchor_locked": ({"aborted"}, STAYS, STAYS, STAYS, STAYS, {"capped", "committed", "retry"}, CANNOT, STAYS,
                          NO, NO, {"aborted"}),
        "covered": ({"aborted"}, STAYS, STAYS, STAYS, STAYS, STAYS, {"retry"}, STAYS,
                    {"retry"}, STAYS, {"aborted"}),
        "retry": ({"aborted"}, STAYS, STAYS, ANY_LAUNCH, {"retry"}, STAYS, STAYS, {"covered"},
                  STAYS, {"capped"}, {"aborted"}),
        "capped": ({"aborted"}, STAYS, STAYS, STAYS, STAYS, STAYS, STAYS, STAYS,
                   STAYS, STAYS, {"aborted"}),
        "committed": ({"aborted"}, {"finished"}, {"retracted"}, STAYS, STAYS, STAYS, CANNOT, STAYS,
                      NO, STAYS, {"aborted"}),
    },
    "hold": {
        "parked": ({"dropped"}, STAYS, STAYS, {"expired"}, {"expired"}, STAYS, {"lost", "dropped"},
                   {"covered", "dropped"}, {"dropped"}, {"dropped"}, {"dropped"}),
        "fetching": ({"draining"}, STAYS, STAYS, {"ready", "draining"}, {"failed"}, {"ready", "failed"}, {"draining"},
                     {"draining"}, {"draining"}, {"draining"}, {"draining"}),
        "ready": ({"dropped"}, STAYS, STAYS, {"expired"}, STAYS, STAYS, {"dropped"},
                  {"dropped"}, {"dropped"}, {"dropped"}, {"dropped"}),
        "planned": ({"dropped"}, STAYS, STAYS, STAYS, STAYS, {"ready", "dropped"}, CANNOT,
                    {"loading"}, NO, NO, {"dropped"}),
        "loading": (STAYS, STAYS, STAYS, STAYS, STAYS, STAYS, STAYS,
                    STAYS, NO, STAYS, {"spliced"}),
        "draining": (STAYS, STAYS, STAYS, STAYS, STAYS, STAYS, STAYS,
                     STAYS, STAYS, STAYS, {"dropped"}),
    },
}  # fmt: skip
"""The exits as people agreed on them; where a cell has two ends, the circumstances decide which.

A hold's abort is that of its last claimant. `covered` under a flush goes when it is visited, `lookup` under a detach
when it is answered. A shutdown aborts whatever waits or runs, and waits for every IO.
"""

SPECS = {"request": REQUEST, "hold": HOLD}


@pytest.mark.parametrize("machine", AGREED)
def test_the_matrix_names_every_state_that_an_exit_can_find(machine):
    """Neither more nor less than was agreed on."""
    assert list(AGREED[machine]) == [state.name.name.lower() for state in states(SPECS[machine])]


def test_the_columns_are_the_agreed_ones():
    """In their order."""
    assert COLUMNS == tuple(Exit)


@pytest.mark.parametrize("exit_", Exit)
@pytest.mark.parametrize(("machine", "state"), [(m, s) for m, rows in AGREED.items() for s in rows])
def test_a_cell_leads_where_it_was_agreed(machine, state, exit_):
    """The rows of the declaration give the same ends as the copy by hand."""
    spec = SPECS[machine]
    here = cell(spec, next(s for s in spec.states if s.name.name.lower() == state), exit_)
    found = {here.barred} if here.barred else {end.name.lower() for end in here.ends(spec)}
    assert AGREED[machine][state][COLUMNS.index(exit_)] == found


def test_a_way_that_no_row_has_is_not_listed():
    """Every way of every exit leads somewhere, so that a renamed event cannot empty a column unseen."""
    for (machine, exit_), ways in exits.WAYS.items():
        spec = SPECS[machine]
        moves = {(row.event, row.outcome) for row in spec.rows}
        for way in ways:
            assert way is exits.CLOCK or (way.event, way.outcome) in moves, f"{machine}, {exit_}: {way}"


def test_the_page_has_a_line_for_each_state():
    """And a column for each exit."""
    lines = [line for line in exits.page("0").splitlines() if line.startswith("| **")]
    assert [f"| **{state}** " for rows in AGREED.values() for state in rows] == [
        line[: line.index("|", 2)] for line in lines
    ]
    assert {len(COLUMNS) + 2} == {line.count("|") for line in lines}
