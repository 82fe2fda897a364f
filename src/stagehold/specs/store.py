"""The *store* machine: the circuit breaker of one store, a standing machine.

Its events are agreed results (worst rank wins). Results of operations begun before the last change of state
are facts for the ledger, never events here.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import ANY, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Probed, Result


class StoreState(IntEnum):
    """States of *store*; the numbers are part of the audit layout."""

    HEALTHY = 0
    SUSPECT = 1
    OPEN = 2
    PROBING = 3
    CLOSED = 4


S = StoreState

STORE = MachineSpec(
    name="store",
    one_per="store",
    doc="Decides whether the store is asked at all.",
    life=Life.STANDING,
    initial=S.HEALTHY,
    states=(
        state(S.HEALTHY, Kind.RESTING, "answers"),
        state(S.SUSPECT, Kind.WAITING, "recent faults", deadline=("suspect_window", "timeout")),
        state(S.OPEN, Kind.WAITING, "not asked; lookups decline at once", deadline=("open_limit", "timeout")),
        state(S.PROBING, Kind.WAITING, "round trips of the test page decide", "probe", deadline=("probe_limit", "timeout")),
        state(S.CLOSED, Kind.TERMINAL, "detached, or the engine gone"),
    ),
    decisions=(
        Decision(state=S.HEALTHY, event="result", name="result", outcomes=Result),
        Decision(state=S.SUSPECT, event="result", name="result", outcomes=Result),
        Decision(state=S.PROBING, event="probed", name="probed", outcomes=Probed),
    ),
    rows=(
        row(S.HEALTHY, "result", Result.CLEAN, S.HEALTHY, "window without faults"),
        row(S.HEALTHY, "result", Result.FAULTY, S.SUSPECT, "some faults"),
        row(S.HEALTHY, "result", Result.TRIPPED, S.OPEN, "fault ratio over the limit", effect="rest"),
        row(S.SUSPECT, "result", Result.CLEAN, S.HEALTHY, "faults left the window"),
        row(S.SUSPECT, "result", Result.FAULTY, S.SUSPECT, "still some"),
        row(S.SUSPECT, "result", Result.TRIPPED, S.OPEN, "over the limit", effect="rest"),
        row(S.SUSPECT, "timeout", None, S.HEALTHY, "quiet for a window"),
        row(S.OPEN, "timeout", None, S.PROBING, "rest over; results of the old epoch are not events",
            effect="probe", takes="probe"),
        row(S.PROBING, "probed", Probed.GOOD, S.HEALTHY, "every trip in time, the page came back right",
            effect="recover", releases="probe"),
        row(S.PROBING, "probed", Probed.BAD, S.OPEN, "longer rest, up to a cap",
            effect="rest_longer", releases="probe"),
        row(S.PROBING, "timeout", None, S.OPEN, "silence is bad", effect="rest_longer", releases="probe"),
        row(ANY, "close", None, S.CLOSED, "detached, or shutdown", effect="close", releases=ANY),
    ),
)  # fmt: skip
