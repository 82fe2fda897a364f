"""The *write* machine: one per span of pages that the store is to have.

Only `stored` teaches a belief, and only `stored` wakes retries that wait for these pages.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Copied, Offer, PutEnded, Start


class WriteState(IntEnum):
    """States of *write*; the numbers are part of the audit layout."""

    OFFERED = 0
    QUEUED = 1
    COPYING = 2
    STORING = 3
    DRAINING = 4
    STORED = 5
    DROPPED = 6
    REFUSED = 7
    KEPT = 8


S = WriteState

WRITE = MachineSpec(
    name="write",
    one_per="span of pages to be stored",
    doc="Carries computed pages from the device to the store; where none is in use, to host memory (cache mode).",
    life=Life.FINITE,
    initial=S.OFFERED,
    counters={"tries": "tries"},
    states=(
        state(S.OFFERED, Kind.PASSING, "intent on the table"),
        state(S.QUEUED, Kind.WAITING, "waits for staging, or for its next try", "backlog",
              deadline=("write_wait_limit", "timeout"), elsewhere="write queue"),
        state(S.COPYING, Kind.FLYING, "device to staging", "backlog, io, staging", elsewhere="ongoing_write_through"),
        state(S.STORING, Kind.WAITING, "staging to store", "backlog, io, staging",
              deadline=("put_limit", "timeout"), elsewhere="ongoing_backup"),
        state(S.DRAINING, Kind.FLYING, "nobody waits; the IO still owns the buffer", "io, staging"),
        state(S.STORED, Kind.TERMINAL, "acknowledged: the only state that teaches a belief"),
        state(S.DROPPED, Kind.TERMINAL, "given up, with a reason"),
        state(S.REFUSED, Kind.TERMINAL, "not admitted, with a reason"),
        state(S.KEPT, Kind.TERMINAL, "in host memory, and no store was in use to take it (cache mode)"),
    ),
    decisions=(
        Decision(state=S.OFFERED, event="offer", name="offer", outcomes=Offer),
        Decision(state=S.QUEUED, event="start", name="start", outcomes=Start),
        Decision(state=S.COPYING, event="copied", name="copied", outcomes=Copied),
        Decision(state=S.STORING, event="put_ended", name="put_ended", outcomes=PutEnded),
    ),
    rows=(
        row(S.OFFERED, "offer", Offer.QUEUE, S.QUEUED, "admitted", effect="enqueue", takes="backlog"),
        row(S.OFFERED, "offer", Offer.OFF, S.REFUSED, "no store in use, and host memory is no tier", effect="refuse"),
        row(S.OFFERED, "offer", Offer.KEYLESS, S.REFUSED, "not a whole page, or no key", effect="refuse"),
        row(S.OFFERED, "offer", Offer.BELIEVED, S.REFUSED, "stored already; without a store: in host memory already",
            effect="refuse"),
        row(S.OFFERED, "offer", Offer.IN_FLIGHT, S.REFUSED, "same pages under way", effect="refuse"),
        row(S.OFFERED, "offer", Offer.UNCOVERED, S.REFUSED, "parent neither stored nor under way",
            effect="refuse"),
        row(S.OFFERED, "offer", Offer.FULL, S.REFUSED, "backlog cap", effect="refuse"),
        row(S.OFFERED, "offer", Offer.NEVER_FITS, S.REFUSED, "larger than staging can ever give",
            effect="refuse"),
        row(S.OFFERED, "drop", None, S.DROPPED, "decree"),
        row(S.QUEUED, "start", Start.COPY, S.COPYING, "sources come under the IO ticket",
            effect="copy", takes="staging, io"),
        row(S.QUEUED, "start", Start.HOSTED, S.STORING, "bytes are in the host tier: no copy",
            effect="put_hosted", takes="staging, io"),
        row(S.QUEUED, "start", Start.BLOCKED, S.QUEUED, "loads come first, or not yet due, or breaker open",
            clock="write_wait_limit"),
        row(S.QUEUED, "start", Start.GONE, S.DROPPED, "node evicted, or its parent's write dropped",
            effect="unqueue", releases="backlog"),
        row(S.QUEUED, "timeout", None, S.DROPPED, "too old", effect="unqueue", releases="backlog"),
        row(S.QUEUED, "drop", None, S.DROPPED, "decree", effect="unqueue", releases="backlog"),
        row(S.COPYING, "copied", Copied.WANTED, S.STORING, "device source released, put begins",
            effect="put", takes="io", releases="io"),
        row(S.COPYING, "copied", Copied.UNWANTED, S.DROPPED, "told to stop, or detached meanwhile",
            effect="give_up", releases="backlog, staging, io"),
        row(S.COPYING, "copied", Copied.KEPT, S.KEPT, "no store in use: host memory keeps it, nothing is believed",
            effect="keep", releases="backlog, staging, io"),
        row(S.STORING, "put_ended", PutEnded.STORED, S.STORED, "belief taught, retries woken",
            effect="stored", releases="backlog, staging, io"),
        row(S.STORING, "put_ended", PutEnded.FAILED, S.QUEUED, "never sit on staging between tries",
            effect="back_off", releases="staging, io", counts="tries"),
        row(S.STORING, "put_ended", PutEnded.SPENT, S.DROPPED, "tries spent",
            effect="give_up", releases="backlog, staging, io"),
        row(S.STORING, "timeout", None, S.DRAINING, "a put that hangs is not tried again",
            effect="let_drain", releases="backlog"),
        row(S.STORING, "drop", None, S.DRAINING, "decree", effect="let_drain", releases="backlog"),
        row(S.DRAINING, "io_ended", None, S.DROPPED, "end of IO", effect="drained", releases="staging, io"),
    ),
)  # fmt: skip
