"""The *attachment* machine: whether a store is in use, a standing machine."""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import ANY, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Started


class AttachmentState(IntEnum):
    """States of *attachment*; the numbers are part of the audit layout."""

    DETACHED = 0
    ATTACHING = 1
    ATTACHED = 2
    DRAINING = 3
    CLOSED = 4


S = AttachmentState

ATTACHMENT = MachineSpec(
    name="attachment",
    one_per="store link",
    doc="Opens, tests, drains and closes the link to a store.",
    life=Life.STANDING,
    initial=S.DETACHED,
    states=(
        state(S.DETACHED, Kind.RESTING, "no store"),
        state(S.ATTACHING, Kind.WAITING, "start-up self-test", "link", deadline=("attach_limit", "timeout")),
        state(S.ATTACHED, Kind.RESTING, "in use", "link"),
        state(S.DRAINING, Kind.WAITING, "holds dropped, IO running out", "link",
              deadline=("detach_limit", "timeout")),
        state(S.CLOSED, Kind.TERMINAL, "engine gone"),
    ),
    decisions=(Decision(state=S.ATTACHING, event="started", name="started", outcomes=Started),),
    rows=(
        row(S.DETACHED, "attach", None, S.ATTACHING, "run the self-test",
            effect="open_link", takes="link"),
        row(S.ATTACHING, "started", Started.READY, S.ATTACHED, "test page came back right"),
        row(S.ATTACHING, "started", Started.REFUSED, S.DETACHED, "with the reason",
            effect="close_link", releases="link"),
        row(S.ATTACHING, "timeout", None, S.DETACHED, "with the reason", effect="close_link", releases="link"),
        row(S.ATTACHING, "detach", None, S.DETACHED, "changed one's mind", effect="close_link", releases="link"),
        row(S.ATTACHED, "detach", None, S.DRAINING, "holds and writes dropped that need it; in buffer_only all", effect="drop_all"),
        row(S.DRAINING, "drained", None, S.DETACHED, "no operation left", effect="close_link", releases="link"),
        row(S.DRAINING, "timeout", None, S.DETACHED, "what still flies keeps its own buffers",
            effect="close_link", releases="link"),
        row(ANY, "close", None, S.CLOSED, "shutdown", effect="close_link", releases=ANY),
    ),
)  # fmt: skip
