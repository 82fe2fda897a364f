"""The *tick* machine: the engine's own pass, a standing machine; one exchange on every way round.

Only `stopped`, QUARANTINE and `halt` are recorded.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import ANY, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Agreed


class TickState(IntEnum):
    """States of *tick*; the numbers are part of the audit layout."""

    BETWEEN = 0
    POLLING = 1
    AGREEING = 2
    APPLYING = 3
    TIMING = 4
    ISSUING = 5
    RECORDING = 6
    STOPPED = 7


S = TickState

TICK = MachineSpec(
    name="tick",
    one_per="engine",
    doc="One scheduler pass as seen by the engine; the only clock.",
    life=Life.STANDING,
    initial=S.BETWEEN,
    sparse=True,
    states=(
        state(S.BETWEEN, Kind.RESTING, "outside the tick: the scheduler's own pass"),
        state(S.POLLING, Kind.PASSING, "collect local facts"),
        state(S.AGREEING, Kind.WAITING, "the one collective", "exchange",
              deadline=("group_timeout_seconds", "timeout")),
        state(S.APPLYING, Kind.PASSING, "agreed facts become events in operation order"),
        state(S.TIMING, Kind.PASSING, "what falls due on this tick"),
        state(S.ISSUING, Kind.PASSING, "launches, IO commits, write starts"),
        state(S.RECORDING, Kind.PASSING, "block, hash, metrics"),
        state(S.STOPPED, Kind.TERMINAL, "divergence, a dead rank, or shutdown"),
    ),
    decisions=(Decision(state=S.AGREEING, event="agreed", name="agreed", outcomes=Agreed),),
    rows=(
        row(S.BETWEEN, "tick", None, S.POLLING, "first act of every pass"),
        row(S.POLLING, "polled", None, S.AGREEING, "never skipped, size fixed", takes="exchange"),
        row(S.AGREEING, "agreed", Agreed.SAME, S.APPLYING, "digests equal", releases="exchange"),
        row(S.AGREEING, "agreed", Agreed.DIVERGED, S.STOPPED, "the ranks closed different blocks",
            releases="exchange"),
        row(S.AGREEING, "agreed", Agreed.QUARANTINE, S.APPLYING, "policy: go on without the store tier",
            effect="quarantine", releases="exchange"),
        row(S.AGREEING, "timeout", None, S.STOPPED, "a rank is silent", releases="exchange"),
        row(S.APPLYING, "applied", None, S.TIMING, "events worked off"),
        row(S.TIMING, "timed", None, S.ISSUING, "deadlines fired"),
        row(S.ISSUING, "issued", None, S.RECORDING, "operations sent"),
        row(S.RECORDING, "recorded", None, S.BETWEEN, "block closed"),
        row(ANY, "halt", None, S.STOPPED, "shutdown", effect="halt", releases=ANY),
    ),
)  # fmt: skip
