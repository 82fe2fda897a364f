"""*blind*: what was found when the store was asked is believed until the commit, and charged before it is delivered.

Stands for SGLang's buffer mode before its pull requests 36834 and 39283, as these describe it. Between question and
commit nobody looks at the live tree: a fetch is sent off on the prefix that the question saw, and nothing keeps that
prefix. At the commit the hold is used whole, or not at all where the prefix has shrunk or grown; what the plan promised
is charged in either case. Nothing bounds retries, waits for staging, or how long a finished hold may wait for room,
and the store is asked however slow it is.

Three things are kinder than they were there: equal spans share one hold, a prefix seen to be gone while its bytes are
still on their way ends the wait, and what was charged and not delivered is computed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stagehold import Acts, Delivery, Look, Machines
from stagehold.lab.policies.policy import Policy
from stagehold.lab.policies.tables import uncounted, with_rows, without_clocks, without_deadlines
from stagehold.machines import Machine, Rule
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Commit, Evaluate, FetchGate, IoCommit
from stagehold.specs.request import REQUEST, RequestState

TIMELESS = ("park_limit", "ready_limit")

_HOLD = without_clocks(without_deadlines(HOLD, (HoldState.PARKED, HoldState.READY)), TIMELESS)

_REQUEST = with_rows(
    without_clocks(uncounted(REQUEST, "due"), TIMELESS),
    {(RequestState.ANCHOR_LOCKED, "commit", Commit.DEFERRED): {"counts": None}},
)


def io_commit(acts: Acts, own: Any, h: Machine, _look: Look) -> IoCommit:
    """The prefix is taken for granted, as it was seen when the store was asked; only staging is looked at."""
    first, last = acts.span(h)
    outcome: IoCommit = own(h, Look(first, last - 1))
    return outcome


def fetch(acts: Acts, own: Any, h: Machine, _look: Look) -> Any:
    """All of the span, whatever the tree has of it by now."""
    first, _ = acts.span(h)
    return own(h, Look(first, first, resident=min(first, acts.resident(h))))


def evaluate(acts: Acts, own: Any, m: Machine, look: Look) -> Evaluate:
    """Once the bytes are there, a plan is made even where the prefix that they belong behind has gone."""
    first, last = acts.span(m)
    if acts.is_ready(m) and look.live < first and acts.can_lock(m, min(look.live, last)):
        return Evaluate.LOCKED
    outcome: Evaluate = own(m, look)
    return outcome


def commit(acts: Acts, own: Any, m: Machine, delivery: Delivery) -> Commit:
    """All of the hold or nothing of it. A request that does not fit keeps its hold, and those behind it wait."""
    first, _ = acts.span(m)
    whole = delivery.live == first
    outcome: Commit = own(m, delivery if whole else replace(delivery, delivered=0))
    if outcome is Commit.UNFIT:
        return Commit.NO_ROOM if acts.running else Commit.DEFERRED
    return outcome


def admit_bare(acts: Acts, own: Any, m: Machine, delivery: Delivery) -> Any:
    """The hold is dropped, and what it had promised is charged all the same."""
    detail = own(m, delivery)
    charged = delivery.promised - delivery.joint
    if charged > 0:
        acts.charge(m, charged)
    return detail


def pace(acts: Acts, _own: Any, m: Machine, _arg: Any) -> None:
    """Every interval, for as long as the request waits; a write that brings what is missing wakes nobody."""
    acts.arm_retry(m)


BLIND = Policy(
    name="blind",
    doc="Asks once, fetches unpinned, uses all or nothing, charges before delivery, retries without bound.",
    machines=Machines(
        changed=(_REQUEST, _HOLD),
        functions={
            "hold.io_commit": io_commit,
            "hold.fetch": fetch,
            "hold.take_local": fetch,
            "request.evaluate": evaluate,
            "request.commit": commit,
            "request.admit_bare": admit_bare,
            "request.pace": pace,
        },
        waive=(Rule.DEADLINE, Rule.CYCLE, Rule.UNUSED),
    ),
    settings={"pin_fraction": 0.0, "fetch_gate": FetchGate.OFF},
    waived={
        "deadline": "a parked or finished hold waits for as long as it takes",
        "cycle": "retries, looks at a parked hold and refused commits repeat without bound",
        "unused": "deferrals are not counted, so nothing is dropped for having been deferred too often",
    },
    charges_ahead=True,
)
