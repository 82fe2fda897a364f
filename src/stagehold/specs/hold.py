"""The *hold* machine: one per span that somebody wants, (namespace, first page, last page).

Requests that want the same span hold a counted claim each on the same hold. The hold owns buffer, pin and IO;
it looks at the live tree once, at IO commit; after that its claimants do, at each visit.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import Books, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Cut, Fetched, IoCommit


class HoldState(IntEnum):
    """States of *hold*; the numbers are part of the audit layout."""

    PARKED = 0
    FETCHING = 1
    READY = 2
    PLANNED = 3
    LOADING = 4
    DRAINING = 5
    SPLICED = 6
    COVERED = 7
    LOST = 8
    EXPIRED = 9
    FAILED = 10
    DROPPED = 11


S = HoldState
LOSS = Books.LOSS

HOLD = MachineSpec(
    name="hold",
    one_per="span that somebody wants",
    doc="Owns buffer, pin and IO of one span, from hit to splice.",
    life=Life.FINITE,
    initial=S.PARKED,
    births=(S.DRAINING,),
    states=(
        state(S.PARKED, Kind.WAITING, "wants staging, pin and IO; owns none of them",
              deadline=("park_limit", "cut"), elsewhere="pending_hit_allocs"),
        state(S.FETCHING, Kind.WAITING, "bytes on their way from the store", "io, pin, staging",
              deadline=("fetch_limit", "cut"), elsewhere="ongoing_prefetch"),
        state(S.READY, Kind.WAITING, "verified bytes in staging", "pin, staging",
              deadline=("ready_limit", "cut"), elsewhere="staged_prefetches"),
        state(S.PLANNED, Kind.VISIT, "one request of the claimants is committing", "pin, staging"),
        state(S.LOADING, Kind.FLYING, "published; copy to the device in flight", "io, staging",
              elsewhere="ongoing_buffer_load_back"),
        state(S.DRAINING, Kind.FLYING, "nobody wants it; the IO still owns the buffer", "io, staging"),
        state(S.SPLICED, Kind.TERMINAL, "all of it is on the device"),
        state(S.COVERED, Kind.TERMINAL, "the tree had it before the fetch began"),
        state(S.LOST, Kind.TERMINAL, "no anchor at IO commit"),
        state(S.EXPIRED, Kind.TERMINAL, "time was up"),
        state(S.FAILED, Kind.TERMINAL, "store failed or delivered too little"),
        state(S.DROPPED, Kind.TERMINAL, "no claimant left, or told to stop"),
    ),
    decisions=(
        Decision(state=S.PARKED, event="io_commit", name="io_commit", outcomes=IoCommit),
        Decision(state=S.FETCHING, event="fetched", name="fetched", outcomes=Fetched),
        Decision(state=S.FETCHING, event="cut", name="cut", outcomes=Cut),
    ),
    rows=(
        row(S.PARKED, "io_commit", IoCommit.PINNED, S.FETCHING, "anchor live and pinned",
            effect="fetch", takes="staging, pin, io", books=LOSS),
        row(S.PARKED, "io_commit", IoCommit.NO_ANCHOR, S.FETCHING, "span starts at the root: empty pin",
            effect="fetch", takes="staging, pin, io", books=LOSS),
        row(S.PARKED, "io_commit", IoCommit.TOO_LARGE_TO_PIN, S.FETCHING,
            "pin alone exceeds the cap: empty pin", effect="fetch", takes="staging, pin, io", books=LOSS),
        row(S.PARKED, "io_commit", IoCommit.LOCAL, S.READY,
            "every page is in staging already (host tier, page cache)",
            effect="take_local", takes="staging, pin", books=LOSS),
        row(S.PARKED, "io_commit", IoCommit.PIN_FULL, S.PARKED, "pin cap taken by others", clock="park_limit"),
        row(S.PARKED, "io_commit", IoCommit.NO_STAGING, S.PARKED, "staging taken by others", clock="park_limit"),
        row(S.PARKED, "io_commit", IoCommit.HEAD_BUSY, S.PARKED,
            "a shorter span over the same head is live; trimmed when it is over", clock="park_limit"),
        row(S.PARKED, "io_commit", IoCommit.LOST, S.LOST, "anchor gone", effect="tell"),
        row(S.PARKED, "io_commit", IoCommit.COVERED, S.COVERED, "the live tree covers the span", effect="tell"),
        row(S.PARKED, "io_commit", IoCommit.OVERSIZE, S.DROPPED, "could not fit in empty staging",
            effect="tell_oversize"),
        row(S.PARKED, "io_commit", IoCommit.STORE_OPEN, S.EXPIRED, "breaker open: do not ask; the end stays known",
            effect="tell"),
        row(S.PARKED, "cut", None, S.EXPIRED, "park limit", effect="tell_short_staging"),
        row(S.PARKED, "drop", None, S.DROPPED, "last claim left, flush, detach, shutdown", effect="tell"),
        row(S.FETCHING, "fetched", Fetched.WHOLE, S.READY, "every page verified", effect="verified", releases="io"),
        row(S.FETCHING, "fetched", Fetched.HEAD, S.READY,
            "a head that all components allow; unread tail given back",
            effect="keep_head", releases="io", books=LOSS),
        row(S.FETCHING, "fetched", Fetched.NOTHING, S.FAILED, "less than the threshold verified",
            effect="fail", releases="staging, pin, io"),
        row(S.FETCHING, "cut", Cut.USABLE, S.READY,
            "keep the verified head; tail and IO go to a hold born draining",
            effect="cut_tail", releases="io", books=LOSS),
        row(S.FETCHING, "cut", Cut.HOPELESS, S.DRAINING, "nothing usable yet; claimants told EXPIRED",
            effect="abandon_expired", releases="pin"),
        row(S.FETCHING, "drop", None, S.DRAINING, "buffer is freed by the end of IO",
            effect="abandon_dropped", releases="pin"),
        row(S.READY, "plan", None, S.PLANNED, "a claimant saw LOCKED"),
        row(S.READY, "cut", None, S.EXPIRED, "ready limit", effect="free", releases="staging, pin"),
        row(S.READY, "drop", None, S.DROPPED, "last claim left, or decree", effect="free", releases="staging, pin"),
        row(S.PLANNED, "load", None, S.LOADING,
            "room made, copies queued, tail published; other claimants told SPLICED",
            effect="load", takes="io", releases="pin"),
        row(S.PLANNED, "unplan", None, S.READY, "commit gave up; the ready clock runs on", clock="ready_limit"),
        row(S.PLANNED, "drop", None, S.DROPPED, "last claim left", effect="free", releases="staging, pin"),
        row(S.LOADING, "loaded", None, S.SPLICED, "end of IO", effect="loaded", releases="staging, io"),
        row(S.DRAINING, "io_ended", None, S.DROPPED, "end of IO", effect="drained", releases="staging, io"),
    ),
)  # fmt: skip
