"""*paced*: retries at an interval and up to a bound, and the prefix pinned from the launch on.

Stands for the other remedy of SGLang's buffer mode: ask again, every eight passes and eight times at most, and pin
what the answer will be joined to while the question is still on its way. The pin obeys the same cap as ours, and a
launch that finds no room for it goes on without. Everything else is ours, but for two things: a write of the missing
pages makes no retry due early, and the store is asked however slow it is.
"""

from __future__ import annotations

from typing import Any

from stagehold import Acts, Machines
from stagehold.lab.policies.policy import Policy
from stagehold.lab.policies.tables import owning
from stagehold.machines import Machine
from stagehold.specs.outcomes import FetchGate
from stagehold.specs.request import REQUEST, RequestState

PINNED = (RequestState.LOOKUP, RequestState.STAGED, RequestState.ANCHOR_LOCKED)
"""States in which a request keeps its prefix from eviction."""

LAUNCHES = ("ask", "claim")
ENDS = (
    "miss", "drop_query", "admit_unanswered",
    "leave_lost", "leave_covered", "leave_unwaited", "claim_ended", "claim_ended_lost", "claim_failed",
    "splice", "admit_bare", "give_back", "roll_back", "abort",
)  # fmt: skip
"""Effects that lead into these states, and out of them."""


def launch(acts: Acts, own: Any, m: Machine, arg: Any) -> Any:
    """Ask, or claim, and keep the prefix."""
    detail = own(m, arg)
    acts.pin(m)
    return detail


def end(acts: Acts, own: Any, m: Machine, arg: Any) -> Any:
    """Whatever happens to the claim, the pin goes with it."""
    detail = own(m, arg)
    acts.unpin(m)
    return detail


def pace(acts: Acts, _own: Any, m: Machine, _arg: Any) -> None:
    """The interval alone makes a retry due."""
    acts.arm_retry(m)


PACED = Policy(
    name="paced",
    doc="Pins the prefix from the launch on, and retries at an interval, up to a bound.",
    machines=Machines(
        changed=(owning(REQUEST, PINNED, "pin"),),
        functions={
            **{f"request.{name}": launch for name in LAUNCHES},
            **{f"request.{name}": end for name in ENDS},
            "request.pace": pace,
        },
    ),
    settings={"fetch_gate": FetchGate.OFF},
)
