"""What a World counts from the audit alone: launches and deferrals of each attempt, and where everybody stands.

It trusts no counter of the engine: a launch is a record of a launch row, whatever the row says that it counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.machines import MACHINES, Block, Replayed, replay, rows_of
from stagehold.specs.declare import Row
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import Commit, Launch
from stagehold.specs.request import REQUEST, RequestState


class WorldBroken(AssertionError):
    """A World found something that must never be; the message says what, and at which act of which seed."""


def require(holds: bool, what: str) -> None:
    """Raise `WorldBroken` with `what` unless it holds."""
    if not holds:
        raise WorldBroken(what)


def _is_launch(row: Row) -> bool:
    """Every `due` but CAP, and every `issue` that asks, joins or is declined."""
    if row.event == "due":
        return row.outcome is not Launch.CAP
    return row.event == "issue" and row.outcome not in (Launch.CAP, Launch.TOO_SHORT)


_MACHINE = MACHINES.index(REQUEST) << 8
LAUNCHES = frozenset(_MACHINE | i for i, row in enumerate(rows_of(REQUEST)) if _is_launch(row))
DEFERRALS = frozenset(_MACHINE | i for i, row in enumerate(rows_of(REQUEST)) if row.outcome is Commit.DEFERRED)


@dataclass(slots=True)
class Watch:
    """Figures of one engine since its start. `seen` blocks have been counted."""

    limits: Limits
    seen: int = 0
    launches: Counter[int] = field(default_factory=Counter)
    deferrals: Counter[int] = field(default_factory=Counter)

    def count(self, blocks: list[Block]) -> None:
        """Take in the blocks that are new, and hold the limits against them."""
        for block in blocks[self.seen :]:
            for number, row, flags, _ in block.table().tolist():
                if flags:
                    raise WorldBroken(f"tick {block.tick}: instance {number} was sent an event that it refused")
                if row in LAUNCHES:
                    self._bound(self.launches, number, self.limits.issue_limit)
                elif row in DEFERRALS:
                    self._bound(self.deferrals, number, self.limits.max_staged_admission_defers)
        self.seen = len(blocks)

    def _bound(self, counter: Counter[int], number: int, limit: int) -> None:
        counter[number] += 1
        what = "launched" if counter is self.launches else "deferred"
        require(counter[number] <= limit, f"request {number} was {what} {counter[number]} times, the limit is {limit}")


def check_replay(core: Core, blocks: list[Block]) -> Replayed:
    """The log alone gives the states, counters and token totals of the engine; only at the end of a tick."""
    told = replay(blocks)
    require(told.digest == core.journal.digest, "the log's digest is not the engine's")
    ledger = core.ledger
    for name, ours, theirs in (
        ("queried", ledger.queried, told.totals.queried),
        ("spliced", ledger.spliced, told.totals.spliced),
        ("open", ledger.open, told.totals.open),
        ("losses", dict(+ledger.losses), {k: v for k, v in told.totals.losses.items() if v}),
    ):
        require(ours == theirs, f"{name}: the engine says {ours}, its log {theirs}")
    alive = _alive(core)
    for number, m in alive.items():
        there = told.instances[number]
        here = (m.state, {name: getattr(m, name) for name in there.counters})
        require(
            here == (there.state, there.counters),
            f"instance {number}: the engine says {here}, its log {(there.state, there.counters)}",
        )
    for number, there in told.instances.items():
        ended = number in alive or there.machine == "tick" or _is_terminal(there.machine, there.state)
        require(ended, f"{there.machine} {number} is in {there.state!r} by the log, and the engine has forgotten it")
    return told


def _alive(core: Core) -> dict[int, Any]:
    machines = {**core.requests, **core.holds, **core.writes}
    return {**machines, core.breaker.number: core.breaker, core.link.number: core.link}


def _is_terminal(machine: str, state: Any) -> bool:
    spec = next(spec for spec in MACHINES if spec.name == machine)
    return spec.state(state).kind.value == "terminal"


WAITING = (
    RequestState.QUEUED,
    RequestState.LOOKUP,
    RequestState.STAGED,
    RequestState.COVERED,
    RequestState.RETRY,
    RequestState.CAPPED,
)
"""States of a request between visits, before it is admitted."""
