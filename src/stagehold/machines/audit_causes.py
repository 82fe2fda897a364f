"""Why things happened to a request: the closed set of causes, each with its sentence.

Owns the words of `explain` and the shape of its answer. It reads no log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Verdict(Enum):
    """What a moment meant for the request."""

    ASKED = "asked"
    DECLINED = "declined"
    FOUND = "found"
    WAITED = "waited"
    LOST = "lost"
    COVERED = "covered"
    RETRIED = "retried"
    CAPPED = "capped"
    DEFERRED = "deferred"
    OVERTAKEN = "overtaken"
    REUSED = "reused"
    RECOMPUTED = "recomputed"
    REFUSED = "refused"
    ENDED = "ended"


class Cause(Enum):
    """Why. The value is the sentence, filled in with the facts of the moment."""

    # Launches
    ASKED = "it asked {store} (launch {launch}{woken})"
    KNOWN = "it claimed {tokens} tokens, pages {first}..{last}, of a known end (hold {hold}, launch {launch}{woken})"
    TOO_SHORT = "less was missing on the device than is worth a fetch"
    QUERY_LIMIT = (
        "it had to wait with its lookup: {lookups} lookups were in flight, and no more may be for it "
        "(query_limit, tenant_share; launch {launch})"
    )
    LOAD_LIMIT = (
        "it had to wait with its lookup: holds want {pages} pages of staging "
        "(load_limit_fraction, tenant_share; launch {launch})"
    )
    ABSENT = "it did not ask: {store} was just heard to have nothing of what was missing (launch {launch})"
    LOSING = "it did not ask: waiting for {store} was found to cost more than computing (fetch_gate; launch {launch})"
    BREAKER_OPEN = "it did not ask: {store} was resting, its breaker {breaker} since tick {since} (launch {launch})"
    NO_STORE = "it could not ask: no store was in use, and host memory had nothing for it"
    LAUNCHES_SPENT = "it had used up its launches: {launch} of them (retry_max_reissues)"
    # Answers
    HIT = "{store} was asked, and {tokens} tokens found, pages {first}..{last}: claimed (hold {hold}{shared})"
    MISS = "{store} had nothing of what was missing, or failed"
    BELOW_THRESHOLD = "{store} had only {tokens} tokens of what was missing (prefetch_threshold_tokens)"
    LOOKUP_LIMIT = "{store} gave no answer for {waited} ticks (lookup_limit)"
    # While the hold was under way
    NO_STAGING = "hold {hold} waited: staging was taken by others ({looks} looks, since tick {since})"
    PIN_FULL = (
        "hold {hold} waited: its anchor could not be pinned, others had the cap ({looks} looks, since tick {since})"
    )
    HEAD_BUSY = "hold {hold} waited: a shorter span over its head was under way ({looks} looks, since tick {since})"
    FETCHING = "the fetch of hold {hold} began: pages {first}..{last}, behind {anchor} tokens on the device{trimmed}"
    TAKEN_LOCAL = (
        "hold {hold} was in host memory already: pages {first}..{last}, behind {anchor} tokens on the device{trimmed}"
    )
    FETCHED = "hold {hold} was ready: {fetched} tokens"
    FETCHED_SHORT = (
        "hold {hold} was ready with pages {first}..{last} only: {store} did not deliver {tokens} tokens of this claim"
    )
    CUT = "the fetch of hold {hold} was cut, pages {first}..{last} kept: {tokens} tokens of this claim given up"
    # How claims ended
    ANCHOR_GONE = "the live prefix no longer reached page {first}, where hold {hold} begins: {tokens} tokens lost"
    ANCHOR_GONE_AT_IO = (
        "the live prefix no longer reached page {first} before the fetch of hold {hold} began: {tokens} tokens lost"
    )
    TREE_COVERS = "the device had everything up to page {last} by then: hold {hold} was not needed ({tokens} tokens)"
    TREE_COVERS_AT_IO = (
        "the device had everything up to page {last} before the fetch of hold {hold} began ({tokens} tokens)"
    )
    SIBLING = "{sibling} spliced the shared hold {hold}: its {tokens} tokens were on the device then"
    UNWAITED = (
        "the wait budget was spent {waited} ticks after the claim, hold {hold} was {state}: {tokens} tokens given up"
    )
    PARK_LIMIT = "hold {hold} got no staging or no pin for {waited} ticks (park_limit): {tokens} tokens given up"
    FETCH_LIMIT = "hold {hold} was fetched for {waited} ticks without use (fetch_limit): {tokens} tokens given up"
    READY_LIMIT = "hold {hold} was ready and not used for {waited} ticks (ready_limit): {tokens} tokens given up"
    STORE_WENT_DOWN = "the breaker of {store} opened before the fetch of hold {hold} began: {tokens} tokens given up"
    FETCH_FAILED = "{store} failed, or delivered too little of hold {hold}: {tokens} tokens were not there"
    OVERSIZE = "hold {hold} was larger than all of staging: {tokens} tokens given up"
    DETACHED = "the store was detached, and hold {hold} dropped: {tokens} tokens given up"
    FLUSHED = "everything was flushed, hold {hold} too: {tokens} tokens given up"
    QUARANTINED = "the ranks went on without the store, and hold {hold} was dropped: {tokens} tokens given up"
    # Visits and admission
    NO_ROOM = "it was planned, and the device had no room while {running} others ran: {tokens} tokens put off"
    NO_ROOM_IDLE = (
        "it was planned, and the device had no room although nobody ran: {tokens} tokens put off (deferral {defers})"
    )
    RELEASED = "it was planned, and the scheduler ended the visit without a commit: {tokens} tokens put off"
    DEFERS_SPENT = (
        "it had been deferred {defers} times for room (max_staged_admission_defers): {tokens} tokens given up"
    )
    UNFIT = "hold {hold} delivered nothing, and there was no room without it: {tokens} tokens given up"
    PARTIAL = "hold {hold} delivered less than was promised: rolled back, {tokens} tokens given up"
    UNDELIVERED = "hold {hold} delivered nothing: {tokens} tokens given up"
    SHRANK = "the device had covered the request, and lost some of that again before its admission"
    SPLICED = "it reused {device} tokens of the device and {spliced} of {store} (hold {hold}){rest}"
    ON_DEVICE = "it reused {device} of its {prompt} prompt tokens, which were on the device; computed {computed}"
    UNANSWERED = "it was admitted before {store} had answered"
    NOT_LAUNCHED = "it was admitted before it was launched"
    COMPUTED = "it reused {device} of its {prompt} prompt tokens, computed {computed}"
    REFUSED = "it was sent {event} while it was {state}, and refused it"
    # Ends
    FINISHED = "it finished"
    RETRACTED = "it was retracted; the next attempt has a number of its own"
    ABORTED = "it was aborted while it was {state}{given_up}"

    def says(self, facts: dict[str, Any]) -> str:
        """The sentence with its facts."""
        return self.value.format(**facts)


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to a request, and why. `facts` fill the sentence; counts are in tokens or ticks."""

    tick: int
    verdict: Verdict
    cause: Cause
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.cause.says(self.facts)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "tick": self.tick,
            "verdict": self.verdict.name,
            "cause": self.cause.name,
            "sentence": str(self),
            "facts": {name: fact for name, fact in self.facts.items() if fact != ""},
        }


@dataclass(frozen=True, slots=True)
class Reuse:
    """What an admission reused and computed, in tokens.

    `at_least`: the device may have had more by then, and `computed` is None, since the log does not say. `because`:
    why no more was reused; None where all was that is known to have been there.
    """

    tick: int
    device: int
    store: int
    computed: int | None
    at_least: bool
    because: Cause | None


@dataclass(slots=True)
class Attempt:
    """One attempt of a request: its instance number, when it arrived, what happened, and where it stands."""

    number: int
    attempt: int
    arrived: int
    state: str
    moments: list[Moment] = field(default_factory=list)
    reuse: Reuse | None = None
    lost: int = 0
    """Tokens of its claims that were found and not delivered, those that the device had by then left out."""

    @property
    def over(self) -> bool:
        """Whether it ended within the log."""
        return bool(self.moments) and self.moments[-1].verdict is Verdict.ENDED

    def first(self, verdict: Verdict) -> Moment | None:
        """The first moment of a kind."""
        return next((moment for moment in self.moments if moment.verdict is verdict), None)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        reuse = self.reuse
        return {
            "attempt": self.attempt,
            "instance": self.number,
            "arrived": self.arrived,
            "state": self.state,
            "open": not self.over,
            "answer": self.answer(),
            "lost_tokens": self.lost,
            "reuse": None
            if reuse is None
            else {
                "tick": reuse.tick,
                "device_tokens": reuse.device,
                "store_tokens": reuse.store,
                "computed_tokens": reuse.computed,
                "at_least": reuse.at_least,
                "because": reuse.because and reuse.because.name,
            },
            "moments": [moment.plain() for moment in self.moments],
        }

    def answer(self) -> str:
        """The attempt in one sentence: what was reused, what was not, and why."""
        reuse = self.reuse
        if reuse is None:
            last = self._why(self.moments[-1].cause) if self.moments else ""
            return f"it was not admitted; {last or 'nothing happened to it'}"
        least = "at least " if reuse.at_least else ""
        told = f"it reused {least}{reuse.device} tokens of the device and {reuse.store} of the store"
        told += "" if reuse.computed is None else f", and computed {reuse.computed}"
        if reuse.because is not None:
            told += f"; no more, because {self._why(reuse.because)}"
        return told

    def _why(self, cause: Cause) -> str:
        """The last moment of a cause, in words."""
        return next((f"{m} (tick {m.tick})" for m in reversed(self.moments) if m.cause is cause), "")


@dataclass(frozen=True, slots=True)
class Explanation:
    """All attempts of a request in a log of `requests` requests, from tick `first` to tick `last`."""

    rid: str
    attempts: tuple[Attempt, ...]
    requests: int
    first: int
    last: int

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        log = {"requests": self.requests, "first_tick": self.first, "last_tick": self.last}
        return {"request": self.rid, "log": log, "attempts": [attempt.plain() for attempt in self.attempts]}

    def __str__(self) -> str:
        if not self.attempts:
            span = f"ticks {self.first:,} to {self.last:,}, {self.requests:,} request{'s' * (self.requests != 1)}"
            return f"no request {self.rid!r} arrived in this log ({span})"
        return "\n".join(line for attempt in self.attempts for line in self._lines(attempt))

    def _lines(self, attempt: Attempt) -> list[str]:
        ends = (
            f"{attempt.state} at tick {attempt.moments[-1].tick}"
            if attempt.over
            else (f"still {attempt.state} when the log ends at tick {self.last}")
        )
        title = f"{self.rid}, attempt {attempt.attempt}: arrived in tick {attempt.arrived}, {ends}"
        return [title, *(f"  tick {m.tick}: {m}" for m in attempt.moments), f"  In short: {attempt.answer()}."]
