"""The *request* machine: one per handle (request id, attempt).

It asks for a span, waits for it a little, and is admitted in any case. It never looks at the store and
never holds a buffer: it holds a *claim* on a hold.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import ANY, Books, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import (
    Answer,
    Commit,
    Evaluate,
    HoldEnd,
    Launch,
    Resolve,
    StillCovered,
)


class RequestState(IntEnum):
    """States of *request*; the numbers are part of the audit layout."""

    QUEUED = 0
    LOOKUP = 1
    STAGED = 2
    ANCHOR_LOCKED = 3
    ANCHOR_LOST = 4
    COVERED = 5
    RETRY = 6
    CAPPED = 7
    COMMITTED = 8
    FINISHED = 9
    RETRACTED = 10
    ABORTED = 11


S = RequestState
LOSS = Books.LOSS

REQUEST = MachineSpec(
    name="request",
    one_per="handle",
    doc="Asks for a span, waits for it a little, and is admitted in any case.",
    life=Life.FINITE,
    initial=S.QUEUED,
    counters={"issues": "issue_limit", "defers": "max_staged_admission_defers"},
    states=(
        state(S.QUEUED, Kind.RESTING, "arrived; nothing asked yet", elsewhere="waiting_queue"),
        state(S.LOOKUP, Kind.WAITING, "the store is asked how far the prefix goes", "query",
              deadline=("lookup_limit", "timeout"), elsewhere="prefetch query"),
        state(S.STAGED, Kind.WAITING, "has a claim on a hold that is parked, fetching or ready", "claim",
              delegate="hold", elsewhere="ongoing_prefetch, staged_prefetches"),
        state(S.ANCHOR_LOCKED, Kind.VISIT, "plan made, path locked; commit or give the lock back", "claim, lock",
              elsewhere="anchor_locks"),
        state(S.ANCHOR_LOST, Kind.PASSING, "the live tree no longer reaches the span"),
        state(S.COVERED, Kind.RESTING, "nothing worth fetching: the live tree holds it"),
        state(S.RETRY, Kind.WAITING, "another launch is due; admission may come first at any time",
              deadline=("retry_interval_ticks", "due"), elsewhere="prefetch retry step"),
        state(S.CAPPED, Kind.RESTING, "no more store use for this attempt"),
        state(S.COMMITTED, Kind.LENT, "admitted; the scheduler runs it", "lock, slots", elsewhere="running batch"),
        state(S.FINISHED, Kind.TERMINAL, "ended well"),
        state(S.RETRACTED, Kind.TERMINAL, "sent back; the next attempt is a new handle"),
        state(S.ABORTED, Kind.TERMINAL, "ended by the caller"),
    ),
    decisions=(
        Decision(state=S.QUEUED, event="issue", name="launch", outcomes=Launch),
        Decision(state=S.RETRY, event="due", name="launch", outcomes=Launch),
        Decision(state=S.LOOKUP, event="answer", name="answer", outcomes=Answer),
        Decision(state=S.STAGED, event="evaluate", name="evaluate", outcomes=Evaluate),
        Decision(state=S.STAGED, event="hold_ended", name="hold_ended", outcomes=HoldEnd),
        Decision(state=S.ANCHOR_LOCKED, event="commit", name="commit", outcomes=Commit),
        Decision(state=S.ANCHOR_LOST, event="resolve", name="resolve", outcomes=Resolve),
        Decision(state=S.COVERED, event="admit", name="still_covered", outcomes=StillCovered),
    ),
    rows=(
        row(S.QUEUED, "issue", Launch.LOOKUP, S.LOOKUP, "ask the store",
            effect="ask", takes="query", counts="issues"),
        row(S.QUEUED, "issue", Launch.KNOWN, S.STAGED, "the end is known (host tier): open or join a hold, no query",
            effect="claim", takes="claim", counts="issues", books=Books.QUERIED),
        row(S.QUEUED, "issue", Launch.TOO_SHORT, S.COVERED, "less than the threshold is missing",
            effect="too_short"),
        row(S.QUEUED, "issue", Launch.DECLINED, S.RETRY, "rate limit or load limit",
            effect="decline", counts="issues"),
        row(S.QUEUED, "issue", Launch.STORE_OPEN, S.RETRY,
            "breaker open: no timer is armed, the store's recovery sends due; one issue per outage",
            effect="store_open", counts="issues"),
        row(S.QUEUED, "issue", Launch.CAP, S.CAPPED, "no store in use, and nothing in host memory"),
        row(S.QUEUED, "admit", None, S.COMMITTED, "admission never waits for a launch",
            effect="admit", takes="lock, slots"),
        row(S.LOOKUP, "answer", Answer.HIT, S.STAGED, "open or join the hold of this span",
            effect="claim_hit", takes="claim", releases="query", books=Books.QUERIED),
        row(S.LOOKUP, "answer", Answer.MISS, S.RETRY, "nothing stored", effect="miss", releases="query"),
        row(S.LOOKUP, "answer", Answer.BELOW_THRESHOLD, S.RETRY, "stored, but below the threshold",
            effect="miss", releases="query"),
        row(S.LOOKUP, "timeout", None, S.RETRY, "a late answer is ignored by handle",
            effect="drop_query", releases="query"),
        row(S.LOOKUP, "admit", None, S.COMMITTED, "wait budget spent (best_effort: zero)",
            effect="admit_unanswered", takes="lock, slots", releases="query"),
        row(S.STAGED, "evaluate", Evaluate.LOCKED, S.ANCHOR_LOCKED, "hold ready and its anchor live: plan made",
            effect="plan", takes="lock"),
        row(S.STAGED, "evaluate", Evaluate.LOST, S.ANCHOR_LOST,
            "live FULL match fell below the start of the span", effect="leave_lost", releases="claim", books=LOSS),
        row(S.STAGED, "evaluate", Evaluate.COVERED, S.COVERED, "joint match reached the end of the span",
            effect="leave_covered", releases="claim", books=LOSS),
        row(S.STAGED, "evaluate", Evaluate.UNWAITED, S.CAPPED, "hold not ready, wait budget spent",
            effect="leave_unwaited", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.SPLICED, S.COVERED, "a sibling spliced the shared hold",
            effect="claim_ended", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.COVERED, S.COVERED, "IO commit saw the span in the live tree",
            effect="claim_ended", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.LOST, S.ANCHOR_LOST, "IO commit saw no anchor",
            effect="claim_ended_lost", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.EXPIRED, S.RETRY, "time was up; the end stays known",
            effect="claim_ended", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.FAILED, S.RETRY,
            "store failed or delivered too little; the end is forgotten",
            effect="claim_failed", releases="claim", books=LOSS),
        row(S.STAGED, "hold_ended", HoldEnd.DROPPED, S.CAPPED, "flush, detach, shutdown, or can never fit",
            effect="claim_ended", releases="claim", books=LOSS),
        row(S.ANCHOR_LOCKED, "commit", Commit.DELIVERED, S.COMMITTED, "promised = delivered",
            effect="splice", takes="slots", releases="claim", books=Books.SPLICED),
        row(S.ANCHOR_LOCKED, "commit", Commit.MORE, S.COMMITTED,
            "more than promised: extend shrinks, budget stays",
            effect="splice", takes="slots", releases="claim", books=Books.SPLICED),
        row(S.ANCHOR_LOCKED, "commit", Commit.NOTHING, S.COMMITTED, "selected again with zero store hits",
            effect="admit_bare", takes="slots", releases="claim", books=LOSS),
        row(S.ANCHOR_LOCKED, "commit", Commit.UNFIT, S.RETRY,
            "nothing delivered and the shape without hits does not fit now; end known",
            effect="give_back", releases="lock, claim", books=LOSS),
        row(S.ANCHOR_LOCKED, "commit", Commit.PARTIAL, S.CAPPED,
            "between nothing and promised: rolled back, recorded, and raised to the caller after the cascade",
            effect="roll_back", releases="lock, claim", books=LOSS),
        row(S.ANCHOR_LOCKED, "commit", Commit.NO_ROOM, S.STAGED, "no room while others run",
            effect="unlock", releases="lock", clock="ready_limit"),
        row(S.ANCHOR_LOCKED, "release", None, S.STAGED, "the visit ended without a commit",
            effect="unlock", releases="lock", clock="ready_limit"),
        row(S.ANCHOR_LOCKED, "commit", Commit.DEFERRED, S.STAGED, "no room although idle",
            effect="unlock", releases="lock", counts="defers"),
        row(S.ANCHOR_LOCKED, "commit", Commit.DEFER_CAP, S.CAPPED, "deferrals spent: recompute",
            effect="give_back", releases="lock, claim", books=LOSS),
        row(S.ANCHOR_LOST, "resolve", Resolve.RETRY, S.RETRY, "budget left: due at once, end known",
            effect="due_now"),
        row(S.ANCHOR_LOST, "resolve", Resolve.CAP, S.CAPPED, "issues spent"),
        row(S.COVERED, "admit", StillCovered.COMMIT, S.COMMITTED, "still covered, or no issue left",
            effect="admit", takes="lock, slots"),
        row(S.COVERED, "admit", StillCovered.SHRUNK, S.RETRY, "shrank while queued: due at once, end known",
            effect="due_now"),
        row(S.RETRY, "due", Launch.LOOKUP, S.LOOKUP, "ask again", effect="ask", takes="query", counts="issues"),
        row(S.RETRY, "due", Launch.KNOWN, S.STAGED, "end known: open or join a hold, no query",
            effect="claim", takes="claim", counts="issues", books=Books.QUERIED),
        row(S.RETRY, "due", Launch.TOO_SHORT, S.COVERED,
            "the tree grew meanwhile; counts, or covered and retry could chase each other for ever",
            effect="too_short", counts="issues"),
        row(S.RETRY, "due", Launch.DECLINED, S.RETRY, "rate or load limit: counts too",
            effect="decline", counts="issues"),
        row(S.RETRY, "due", Launch.STORE_OPEN, S.RETRY, "as above; one issue per outage",
            effect="store_open", counts="issues"),
        row(S.RETRY, "due", Launch.CAP, S.CAPPED, "issues spent; or no store in use, and nothing in host memory"),
        row(S.RETRY, "admit", None, S.COMMITTED, "an armed retry never delays admission",
            effect="admit", takes="lock, slots"),
        row(S.CAPPED, "admit", None, S.COMMITTED, "what the device holds", effect="admit", takes="lock, slots"),
        row(S.COMMITTED, "finish", None, S.FINISHED, "KV published, writes offered",
            effect="finish", releases="lock, slots"),
        row(S.COMMITTED, "retract", None, S.RETRACTED, "scheduler takes the slots back",
            effect="retract", releases="lock, slots"),
        row(ANY, "abort", None, S.ABORTED, "legal everywhere", effect="abort", releases=ANY, books=LOSS),
    ),
)  # fmt: skip
