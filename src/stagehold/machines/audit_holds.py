"""What a hold's own rows mean to the requests that have a claim on it.

Owns the part of `explain` that is about holds: why one waited, what came of its fetch, and why it expired.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from stagehold.machines.audit_causes import Cause, Verdict
from stagehold.machines.audit_scene import HoldView, Scene, Step
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Cut, Fetched, IoCommit

LOOKS: dict[tuple[str, IntEnum | None], Cause] = {
    ("io_commit", IoCommit.NO_STAGING): Cause.NO_STAGING,
    ("io_commit", IoCommit.PIN_FULL): Cause.PIN_FULL,
    ("io_commit", IoCommit.HEAD_BUSY): Cause.HEAD_BUSY,
}
"""Looks at a parked hold that leave it parked, by event and outcome: members of two enums can be equal."""

CLAIM_ENDS: dict[tuple[Any, str], Cause] = {
    (HoldState.PARKED, "cut"): Cause.PARK_LIMIT,
    (HoldState.FETCHING, "cut"): Cause.FETCH_LIMIT,
    (HoldState.READY, "cut"): Cause.READY_LIMIT,
}
"""Why a hold expired, by source and event of its row; anything else is a store that went down."""


def hold_moment(hold: HoldView, step: Step, scene: Scene) -> tuple[Verdict, Cause, dict[str, Any]] | None:
    """What a row means to each claimant; None where it means nothing, or they are told by a row of their own.

    The scene has followed the row. `tokens` are this claim's share of what the row lost.
    """
    share = step.low // max(1, len(hold.claims))
    facts: dict[str, Any] = {
        "hold": step.number,
        "first": hold.first,
        "last": hold.last,
        "anchor": hold.first * scene.page_size,
        "store": scene.store,
    }
    match step.row.event, step.row.outcome:
        case "io_commit", IoCommit.PINNED | IoCommit.NO_ANCHOR | IoCommit.TOO_LARGE_TO_PIN:
            return Verdict.WAITED, Cause.FETCHING, {**facts, "trimmed": _trimmed(share)}
        case "io_commit", IoCommit.LOCAL:
            return Verdict.WAITED, Cause.TAKEN_LOCAL, {**facts, "trimmed": _trimmed(share)}
        case "fetched", Fetched.WHOLE:
            return Verdict.WAITED, Cause.FETCHED, {**facts, "fetched": step.low}
        case "fetched", Fetched.HEAD:
            return Verdict.WAITED, Cause.FETCHED_SHORT, {**facts, "tokens": share}
        case "cut", Cut.USABLE:
            return Verdict.WAITED, Cause.CUT, {**facts, "tokens": share}
        case _:
            return None


def _trimmed(tokens: int) -> str:
    return f" ({tokens} tokens less than claimed: the device had them by then)" if tokens else ""
