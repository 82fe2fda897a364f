"""What a request's own rows mean to it: each gives a verdict, a cause and the facts of the moment.

Owns that part of `explain`. Every function is asked before the scene has followed the row, so that a claim that ends
there can still be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from stagehold.machines import labels
from stagehold.machines.audit_causes import Attempt, Cause, Moment, Reuse, Verdict
from stagehold.machines.audit_holds import CLAIM_ENDS
from stagehold.machines.audit_scene import HoldView, Scene, Step
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.outcomes import Answer, Commit, Evaluate, HoldEnd, Launch, Loss, Resolve, StillCovered
from stagehold.specs.request import RequestState

Facts = dict[str, Any]
Told = tuple[Verdict, Cause, Facts]


@dataclass(slots=True)
class Asker:
    """What is known of one attempt besides its moments. Tokens and ticks."""

    attempt: Attempt
    since: int
    """Tick in which it came to its state."""
    launches: int = 0
    defers: int = 0
    claimed: int = 0
    """Tick of its open claim."""
    live: int = 0
    """Tokens whose pages the device had when it was planned; not all of them may be of use."""
    prompt: int = 0
    why: Cause | None = None
    """Why no more can be reused, as far as is known."""
    looks: dict[Cause, tuple[int, int]] = field(default_factory=dict)
    """While its hold is parked: how often it was put off for a cause, and the tick of the first time."""


def launch(asker: Asker, scene: Scene, step: Step) -> Told:
    """The store is asked, or not."""
    facts: Facts = {"launch": asker.launches, "store": scene.store}
    match step.row.outcome:
        case Launch.LOOKUP:
            return Verdict.ASKED, Cause.ASKED, {**facts, "woken": _woken(asker, scene, step)}
        case Launch.KNOWN:
            claim = {"tokens": step.low, "hold": step.high, **_span(_claimed(asker, scene, step))}
            return Verdict.FOUND, Cause.KNOWN, {**facts, **claim, "woken": _woken(asker, scene, step)}
        case Launch.TOO_SHORT:
            asker.why = None
            return Verdict.COVERED, Cause.TOO_SHORT, {}
        case Launch.DECLINED:
            cause = DECLINES[min(step.detail, len(DECLINES) - 1)]
            return Verdict.DECLINED, cause, {**facts, "lookups": scene.lookups, "pages": scene.hold_pages}
        case Launch.STORE_OPEN:
            breaker = {"breaker": labels.word(scene.breaker), "since": scene.breaker_since}
            return Verdict.DECLINED, Cause.BREAKER_OPEN, {**facts, **breaker}
        case _:
            attached = scene.link is AttachmentState.ATTACHED
            return Verdict.CAPPED, Cause.LAUNCHES_SPENT if attached else Cause.NO_STORE, facts


def _woken(asker: Asker, scene: Scene, step: Step) -> str:
    """What made a retry due, as far as the records tell."""
    if step.row.source is not RequestState.RETRY:
        return ""
    waited = step.tick - asker.since
    return f", {scene.wakes or ('at once' if not waited else f'{waited} ticks later')}"


def _claimed(asker: Asker, scene: Scene, step: Step) -> HoldView:
    """The hold of a claim that opens; with it, nothing speaks against reusing all that was found."""
    asker.claimed, asker.why = step.tick, None
    asker.looks.clear()
    return scene.holds[step.high]


def _span(hold: HoldView) -> Facts:
    return {"first": hold.first, "last": hold.last}


def answer(asker: Asker, scene: Scene, step: Step) -> Told:
    """The store has answered."""
    store: Facts = {"store": scene.store}
    match step.row.outcome:
        case Answer.HIT:
            hold = _claimed(asker, scene, step)
            others = len(hold.claims)
            shared = f", shared with {others} other{'s' if others > 1 else ''}" if others else ""
            span = {"tokens": step.low, "hold": step.high, **_span(hold)}
            return Verdict.FOUND, Cause.HIT, {**store, **span, "shared": shared}
        case Answer.MISS:
            return Verdict.RETRIED, Cause.MISS, store
        case _:
            return Verdict.RETRIED, Cause.BELOW_THRESHOLD, {**store, "tokens": step.low}


def timeout(asker: Asker, scene: Scene, step: Step) -> Told:
    """The store has not answered."""
    return Verdict.RETRIED, Cause.LOOKUP_LIMIT, {"store": scene.store, "waited": step.tick - asker.since}


def _of_claim(asker: Asker, scene: Scene, step: Step) -> Facts:
    """The claim that a row ends or puts off: its tokens, its hold, and how that stands."""
    number = scene.claims.get(step.number, 0)
    hold = scene.holds.get(number)
    facts: Facts = {"tokens": step.low, "hold": number, "store": scene.store, "defers": asker.defers}
    if hold is None:  # of a log that nobody has verified
        return {**facts, "first": 0, "last": 0, "state": "unknown", "waited": 0}
    return {**facts, **_span(hold), "state": labels.word(hold.state), "waited": hold.waited}


def evaluate(asker: Asker, scene: Scene, step: Step) -> Told | None:
    """A visit has looked at the claim; that it was planned is told by how the visit ends."""
    facts = _of_claim(asker, scene, step)
    match step.row.outcome:
        case Evaluate.LOCKED:
            asker.live, asker.prompt = step.low, step.high
            return None
        case Evaluate.LOST:
            return Verdict.LOST, Cause.ANCHOR_GONE, facts
        case Evaluate.COVERED:
            return Verdict.COVERED, Cause.TREE_COVERS, facts
        case _:
            return Verdict.CAPPED, Cause.UNWAITED, {**facts, "waited": step.tick - asker.claimed}


def hold_ended(asker: Asker, scene: Scene, step: Step) -> Told:
    """The hold says how it ended; the row that it took says why."""
    facts = _of_claim(asker, scene, step)
    hold = scene.holds.get(facts["hold"])
    match step.row.outcome:
        case HoldEnd.SPLICED:
            sibling = None if hold is None else hold.sibling
            name = "a sibling" if sibling is None else scene.names.get(sibling, "a sibling")
            return Verdict.COVERED, Cause.SIBLING, {**facts, "sibling": name}
        case HoldEnd.COVERED:
            return Verdict.COVERED, Cause.TREE_COVERS_AT_IO, facts
        case HoldEnd.LOST:
            return Verdict.LOST, Cause.ANCHOR_GONE_AT_IO, facts
        case HoldEnd.EXPIRED:
            row = None if hold is None else hold.row
            cause = Cause.STORE_WENT_DOWN if row is None else CLAIM_ENDS.get((row.source, row.event))
            return Verdict.RETRIED, cause or Cause.STORE_WENT_DOWN, facts
        case HoldEnd.FAILED:
            return Verdict.RETRIED, Cause.FETCH_FAILED, facts
        case _:
            return Verdict.CAPPED, _dropped(scene, step), facts


def _dropped(scene: Scene, step: Step) -> Cause:
    if step.high == Loss.OVERSIZE:
        return Cause.OVERSIZE
    if scene.quarantined:
        return Cause.QUARANTINED
    return Cause.DETACHED if scene.link is AttachmentState.DRAINING else Cause.FLUSHED


def commit(asker: Asker, scene: Scene, step: Step) -> Told:
    """A visit has tried to admit."""
    facts = _of_claim(asker, scene, step)
    match step.row.outcome:
        case Commit.DELIVERED | Commit.MORE:
            return _spliced(asker, scene, step, facts)
        case Commit.NOTHING:
            asker.why = Cause.UNDELIVERED
            asker.attempt.reuse = Reuse(step.tick, 0, 0, None, at_least=True, because=asker.why)
            return Verdict.RECOMPUTED, Cause.UNDELIVERED, facts
        case Commit.UNFIT:
            return Verdict.RETRIED, Cause.UNFIT, facts
        case Commit.PARTIAL:
            return Verdict.CAPPED, Cause.PARTIAL, facts
        case Commit.NO_ROOM:
            return Verdict.DEFERRED, Cause.NO_ROOM, {**facts, "running": scene.running}
        case Commit.DEFERRED:
            return Verdict.DEFERRED, Cause.NO_ROOM_IDLE, facts
        case _:
            return Verdict.CAPPED, Cause.DEFERS_SPENT, facts


def _spliced(asker: Asker, scene: Scene, step: Step, facts: Facts) -> Told:
    """The hit ends where the hold does, unless the device had grown beyond it."""
    end = facts["last"] * scene.page_size
    grown = step.row.outcome is Commit.MORE or asker.live > end
    device = max(0, end - step.low)
    computed = None if grown else asker.prompt - device - step.low
    asker.attempt.reuse = Reuse(step.tick, device, step.low, computed, at_least=grown, because=asker.why)
    rest = "" if computed is None else f"; computed {computed}"
    return _verdict(asker), Cause.SPLICED, {**facts, "device": device, "spliced": step.low, "rest": rest}


def _verdict(asker: Asker) -> Verdict:
    """Of an admission: something that was found, or could have been, is computed all the same, or nothing is."""
    return Verdict.REUSED if asker.why is None else Verdict.RECOMPUTED


def release(asker: Asker, scene: Scene, step: Step) -> Told:
    """A visit has ended without a commit."""
    return Verdict.DEFERRED, Cause.RELEASED, _of_claim(asker, scene, step)


def resolve(asker: Asker, _scene: Scene, step: Step) -> Told | None:
    """After a lost anchor; that it asks again is told by the launch."""
    if step.row.outcome is Resolve.RETRY:
        return None
    return Verdict.CAPPED, Cause.LAUNCHES_SPENT, {"launch": asker.launches}


def admit(asker: Asker, scene: Scene, step: Step) -> Told:
    """Admitted without a claim; the record says what the device had, and how long the prompt is."""
    if step.row.outcome is StillCovered.SHRUNK:
        return Verdict.RETRIED, Cause.SHRANK, {}
    early = OVERTAKEN.get(step.row.source)
    if early is not None:
        asker.why = early
        asker.attempt.moments.append(Moment(step.tick, Verdict.OVERTAKEN, early, {"store": scene.store}))
    device, computed = step.low, step.high - step.low
    asker.attempt.reuse = Reuse(step.tick, device, 0, computed, at_least=False, because=asker.why)
    cause = Cause.ON_DEVICE if step.row.source is RequestState.COVERED else Cause.COMPUTED
    return _verdict(asker), cause, {"device": device, "prompt": step.high, "computed": computed}


def end(asker: Asker, _scene: Scene, step: Step) -> Told:
    """Finished, retracted or aborted."""
    given_up = f": {step.low} tokens of its claim given up" if step.low else ""
    return Verdict.ENDED, ENDS[step.row.target], {"state": asker.attempt.state, "given_up": given_up}


TELLERS: dict[str, Callable[[Asker, Scene, Step], Told | None]] = {
    "issue": launch,
    "due": launch,
    "answer": answer,
    "timeout": timeout,
    "evaluate": evaluate,
    "hold_ended": hold_ended,
    "commit": commit,
    "release": release,
    "resolve": resolve,
    "admit": admit,
    "finish": end,
    "retract": end,
    "abort": end,
}
"""Who tells of an event of *request*."""

DECLINES = (Cause.QUERY_LIMIT, Cause.LOAD_LIMIT, Cause.ABSENT, Cause.LOSING)
"""Why a launch was declined, by the number in its record's detail: a member of `Decline`."""

OVERTAKEN: dict[IntEnum | str, Cause] = {
    RequestState.QUEUED: Cause.NOT_LAUNCHED,
    RequestState.LOOKUP: Cause.UNANSWERED,
}
"""What an admission came before, by the state that it found."""

ENDS: dict[IntEnum, Cause] = {
    RequestState.FINISHED: Cause.FINISHED,
    RequestState.RETRACTED: Cause.RETRACTED,
    RequestState.ABORTED: Cause.ABORTED,
}
