"""What `explain` says of a request: each cause in a scene of a real engine, and the answers to odd questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagehold.machines import HandleKey, Journal, SpanKey, audit_words, bind
from stagehold.machines.audit import BadLogError, Damage
from stagehold.machines.audit_causes import Cause, Explanation, Verdict
from stagehold.machines.audit_explain import explain
from stagehold.machines.audit_request import DECLINES, TELLERS
from stagehold.machines.logs import AuditLog
from stagehold.specs.attachment import ATTACHMENT
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Agreed, Answer, Commit, Decline, Evaluate, HoldEnd, IoCommit, Launch, Loss
from stagehold.specs.request import REQUEST
from stagehold.specs.tick import TICK
from stagehold.testing.golden import play

C = Cause
STORY = Path(__file__).parents[1] / "golden"

IMPATIENT = "engine wait_base_ticks=0 wait_per_page_ticks=0.0 wait_cap_ticks=0"
SHORT_OF_STAGING = "engine staging_pages=6 load_limit_fraction=1.0"
FOUND = (C.ASKED, C.HIT)
READY = (*FOUND, C.FETCHING, C.FETCHED)

SCENES: dict[str, tuple[str, tuple[Cause, ...]]] = {
    "spliced": (
        "put a:4; arrive one a:4; tick 3; visit one; compute one; finish one",
        (*READY, C.SPLICED, C.FINISHED),
    ),
    "the tree has it": ("grow a:4; arrive one a:4; tick; visit one", (C.TOO_SHORT, C.ON_DEVICE)),
    "ready and not used": (
        "engine ready_limit=3 retry_interval_ticks=2; put a:4; arrive one a:4; tick 9",
        (*READY, C.READY_LIMIT, C.KNOWN, C.FETCHING),
    ),
    "too many lookups": ("engine query_limit=1; arrive two b:4; arrive one a:4; tick", (C.QUERY_LIMIT,)),
    "just heard to be absent": (
        "engine absence_limit=4; arrive two a:4; tick 2; arrive one a:4; tick",
        (C.ABSENT,),
    ),
    "a store that is not worth its wait": (
        (
            "engine fetch_gate=auto prefill_tokens_per_tick=1000 wait_base_ticks=2; put b:8; arrive two b:8; tick 2; "
            "stall; visit two; tick; visit two; tick; visit two; tick; arrive one a:4; tick"
        ),
        (C.LOSING,),
    ),
    "staging is spoken for": (
        (
            "engine load_limit_fraction=0.1 retry_interval_ticks=4; arrive one b:4; tick 2; "
            "put a:4; arrive two a:4; tick 5"
        ),
        (C.ASKED, C.MISS, C.LOAD_LIMIT),
    ),
    "a store that rests": (
        "engine trip_results=2; fail 2; arrive two c:4; arrive three b:4; tick 2; arrive one a:4; tick",
        (C.BREAKER_OPEN,),
    ),
    "no store": ("detach; tick; arrive one a:4; tick; visit one", (C.NO_STORE, C.COMPUTED)),
    "launches are spent": (
        "engine retry_max_reissues=0 retry_interval_ticks=2; arrive one a:4; tick 4",
        (C.ASKED, C.MISS, C.LAUNCHES_SPENT),
    ),
    "little is stored": ("put a:4 0..1; arrive one a:4; tick 2", (C.ASKED, C.BELOW_THRESHOLD)),
    "silence": ("engine lookup_limit=3; stall; arrive one a:4; tick 4", (C.ASKED, C.LOOKUP_LIMIT)),
    "no staging": (
        f"{SHORT_OF_STAGING} park_limit=3; put a:4; put b:4; arrive two b:4; tick 2; arrive one a:4; tick 5",
        (*FOUND, C.NO_STAGING, C.PARK_LIMIT),
    ),
    "no pin": (
        (
            "engine pin_fraction=0.1; grow a:4; grow b:4; put a:8; put b:8; arrive two b:8; "
            "tick 2; arrive one a:8; tick 2; "
            "visit two; tick"
        ),
        (*FOUND, C.PIN_FULL, C.FETCHING),
    ),
    "a shorter span first": (
        "put a:8; arrive two a:4; tick 2; arrive one a:8; tick 2; abort two; tick",
        (*FOUND, C.HEAD_BUSY, C.FETCHING),
    ),
    "in host memory": (
        (
            "engine host_memory_mode=cache; arrive two a:4; visit two; compute two; "
            "finish two; tick 4; shrink a:4 0; "
            "arrive one a:4; tick"
        ),
        (C.KNOWN, C.TAKEN_LOCAL),
    ),
    "a tail that is gone": (
        "put a:6; arrive one a:6; tick 2; lose a:6 4..6; tick; visit one",
        (*FOUND, C.FETCHING, C.FETCHED_SHORT, C.SPLICED),
    ),
    "not waited for, with a head": (
        f"{IMPATIENT}; limit 2; put a:6; arrive one a:6; tick 4; visit one",
        (*FOUND, C.FETCHING, C.CUT, C.SPLICED),
    ),
    "not waited for": (
        f"{IMPATIENT}; put a:4; arrive one a:4; tick 2; stall; visit one",
        (*FOUND, C.FETCHING, C.UNWAITED, C.COMPUTED),
    ),
    "an anchor that went": (
        (
            "engine pin_fraction=0.0 retry_max_reissues=0; put a:8; grow a:4; "
            "arrive one a:8; tick 3; shrink a:8 2; visit one"
        ),
        (*READY, C.ANCHOR_GONE, C.LAUNCHES_SPENT, C.COMPUTED),
    ),
    "an anchor that went before the fetch": (
        (
            f"{SHORT_OF_STAGING}; put b:4; arrive two b:4; tick 2; put a:8; grow a:4; "
            "arrive one a:8; tick 2; shrink a:8 2; "
            "abort two; tick"
        ),
        (*FOUND, C.NO_STAGING, C.ANCHOR_GONE_AT_IO, C.ASKED),
    ),
    "grown meanwhile": (
        "put a:4; arrive one a:4; tick 3; grow a:4; visit one",
        (*READY, C.TREE_COVERS, C.ON_DEVICE),
    ),
    "grown before the fetch": (
        (
            f"{SHORT_OF_STAGING}; put b:4; arrive two b:4; tick 2; put a:4; arrive one a:4; "
            "tick 2; grow a:4; abort two; tick"
        ),
        (*FOUND, C.NO_STAGING, C.TREE_COVERS_AT_IO),
    ),
    "a sibling": (
        "put a:4; arrive two a:4; arrive one a:4; tick 3; visit two; visit one",
        (*READY, C.SIBLING, C.ON_DEVICE),
    ),
    "nothing came in time": (
        "engine fetch_limit=3; put a:4; arrive one a:4; tick 2; stall; tick 3",
        (*FOUND, C.FETCHING, C.FETCH_LIMIT),
    ),
    "the store went down": (
        (
            "engine trip_results=4; put a:8; arrive two a:4; tick 2; arrive one a:8; tick 2; "
            "fail 4; arrive x c:4; "
            "arrive y d:4; arrive z e:4; arrive v f:4; tick 2; abort two; tick"
        ),
        (*FOUND, C.HEAD_BUSY, C.STORE_WENT_DOWN),
    ),
    "the fetch failed": (
        "put a:4; arrive one a:4; tick; fail 1; tick 2",
        (*FOUND, C.FETCHING, C.FETCH_FAILED),
    ),
    "detached": ("put a:4; arrive one a:4; tick 2; detach; tick", (*FOUND, C.FETCHING, C.DETACHED)),
    "flushed": ("put a:4; arrive one a:4; tick 2; flush; tick", (*FOUND, C.FETCHING, C.FLUSHED)),
    "flushed from host memory alone": (
        (
            "engine host_memory_mode=cache; arrive two a:4; visit two; compute two; "
            "finish two; tick 4; shrink a:4 0; detach; tick 3; arrive one a:4; tick; flush; tick"
        ),
        (C.KNOWN, C.TAKEN_LOCAL, C.FLUSHED),
    ),
    "others run": (
        (
            "engine device_pages=48; arrive two b:31; visit two; compute two; tick 6; put a:17; "
            "arrive one a:17; tick 3; visit one"
        ),
        (*READY, C.NO_ROOM),
    ),
    "given back": ("put a:4; arrive one a:4; tick 3; select one; release one", (*READY, C.RELEASED)),
    "shrank again": (
        (
            "put a:4; arrive two a:4; arrive one a:4; tick 3; visit two; compute two; "
            "finish two; tick; shrink a:4 0; visit one"
        ),
        (*READY, C.SIBLING, C.SHRANK, C.KNOWN),
    ),
    "not waited for at all": (f"{IMPATIENT}; arrive one a:4; tick; visit one", (C.ASKED, C.UNANSWERED, C.COMPUTED)),
    "before its launch": ("arrive one a:4; visit one", (C.NOT_LAUNCHED, C.COMPUTED)),
    "retracted": ("arrive one a:4; visit one; retract one", (C.NOT_LAUNCHED, C.COMPUTED, C.RETRACTED)),
    "aborted": ("put a:4; arrive one a:4; tick 2; abort one", (*FOUND, C.FETCHING, C.ABORTED)),
}


def told_of(path: Path, script: str, rid: str = "one") -> Explanation:
    """Play commands, with semicolons between them, and explain a request from the log up to their last tick."""
    with AuditLog(path) as log:
        play("".join(f"> {line.strip()}\n" for line in [*script.split(";"), "tick"]), log.block)
    *kept, _closing = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept))
    return explain(path, rid)


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_has_its_causes(tmp_path: Path, name: str) -> None:
    """Moment by moment, of the first attempt."""
    script, causes = SCENES[name]
    attempt = told_of(tmp_path / "log", script).attempts[0]

    assert list(causes) == [m.cause for m in attempt.moments][: len(causes)]
    assert all(str(moment) for moment in attempt.moments)


class First:
    """Decisions answer with the first of the pair given to the step; effects give the second as its detail."""

    def __getattr__(self, name: str) -> Any:
        return lambda _m, arg=None: arg[0] if arg else None


class Second:
    def __getattr__(self, name: str) -> Any:
        return lambda _m, arg=None: arg[1] if arg else None


class Stepping:
    """Steppers on one journal, for what no engine does by itself."""

    def __init__(self, log: AuditLog) -> None:
        self.journal = Journal(sink=log.block)
        self.request, self.hold, self.link, self.tick = map(self._bound, (REQUEST, HOLD, ATTACHMENT, TICK))
        link = self.link.birth(None, HandleKey("attachment", 0, b""))
        self.link.attach(link, (None, 0))
        self.asker = self.request.birth(None, HandleKey("one", 0, b"ns"))
        self.request.issue(self.asker, (Launch.LOOKUP, 0))
        self.held = self.hold.birth(None, SpanKey(b"ns", bytes(16), 2, 6))
        self.request.answer(self.asker, (Answer.HIT, 64 | self.held.number << 32))

    def _bound(self, spec: Any) -> Any:
        return bind(spec, decisions=First(), effects=Second(), journal=self.journal, arm=None, strict=False)

    def lock(self) -> None:
        self.request.evaluate(self.asker, (Evaluate.LOCKED, 32 | 100 << 32))


def lost(reason: Loss) -> int:
    return 64 | reason << 32


def commits(run: Stepping, outcome: Commit, detail: int) -> None:
    run.lock()
    run.request.commit(run.asker, (outcome, detail))


def oversize(run: Stepping) -> None:
    run.hold.io_commit(run.held, (IoCommit.OVERSIZE, 0))
    run.request.hold_ended(run.asker, (HoldEnd.DROPPED, lost(Loss.OVERSIZE)))


def quarantine(run: Stepping) -> None:
    m = run.tick.birth(None, HandleKey("tick", 0, b""))
    run.tick.fire(m, "tick")
    run.tick.fire(m, "polled")
    run.tick.fire(m, "agreed", (Agreed.QUARANTINE, 0))
    run.hold.drop(run.held, (None, 0))
    run.request.hold_ended(run.asker, (HoldEnd.DROPPED, lost(Loss.DROPPED)))


ODD = {
    C.NO_ROOM_IDLE: lambda run: commits(run, Commit.DEFERRED, 64),
    C.DEFERS_SPENT: lambda run: commits(run, Commit.DEFER_CAP, lost(Loss.SHORT_DEVICE)),
    C.UNFIT: lambda run: commits(run, Commit.UNFIT, lost(Loss.SHORT_DEVICE)),
    C.PARTIAL: lambda run: commits(run, Commit.PARTIAL, lost(Loss.PARTIAL)),
    C.UNDELIVERED: lambda run: commits(run, Commit.NOTHING, lost(Loss.SHORT_DEVICE)),
    C.OVERSIZE: oversize,
    C.QUARANTINED: quarantine,
    C.REFUSED: lambda run: run.request.finish(run.asker),
}
"""Causes that a small engine does not come to by itself."""


@pytest.mark.parametrize("cause", ODD)
def test_rare_causes_are_told_apart(tmp_path: Path, cause: Cause) -> None:
    """By the rows alone."""
    with AuditLog(tmp_path / "log") as log:
        run = Stepping(log)
        ODD[cause](run)
        run.journal.close_block(0)

    assert cause is explain(tmp_path / "log", "one").attempts[0].moments[-1].cause


def test_every_cause_is_shown_by_some_scene() -> None:
    """A cause that nothing leads to is a sentence that nobody has read."""
    assert set(Cause) == {cause for _, causes in SCENES.values() for cause in causes} | set(ODD)


def test_every_event_of_a_request_has_its_teller() -> None:
    """A row, or a reason to decline, that is added is explained."""
    assert set(REQUEST.events()) == set(TELLERS)
    assert len(Decline) == len(DECLINES)


def test_an_explanation_reads_as_sentences(tmp_path: Path) -> None:
    """Ticks, tokens, pages, store and hold."""
    script, _ = SCENES["a tail that is gone"]

    assert READS == str(told_of(tmp_path / "log", script)).splitlines()


READS = """\
one, attempt 0: arrived in tick 3, still committed when the log ends at tick 6
  tick 3: it asked store 1 (launch 1)
  tick 4: store 1 was asked, and 96 tokens found, pages 0..6: claimed (hold 4)
  tick 4: the fetch of hold 4 began: pages 0..6, behind 0 tokens on the device
  tick 5: hold 4 was ready with pages 0..4 only: store 1 did not deliver 32 tokens of this claim
  tick 6: it reused 0 tokens of the device and 64 of store 1 (hold 4); computed 33
  In short: it reused 0 tokens of the device and 64 of the store, and computed 33; no more, because hold 4 was ready \
with pages 0..4 only: store 1 did not deliver 32 tokens of this claim (tick 5).
""".splitlines()


def test_a_request_that_never_arrived(tmp_path: Path) -> None:
    """Is said to be unknown, with what the log covers."""
    told = told_of(tmp_path / "log", "arrive one a:4; tick", "two")

    assert () == told.attempts
    assert "no request 'two' arrived in this log (ticks 1 to 4, 1 request)" == str(told)


def test_attempts_are_told_one_by_one(tmp_path: Path) -> None:
    """Each has its own moments, and its own end."""
    told = told_of(tmp_path / "log", "arrive one a:4; visit one; retract one; tick; abort one")

    assert [0, 1] == [attempt.attempt for attempt in told.attempts]
    assert [C.RETRACTED, C.ABORTED] == [attempt.moments[-1].cause for attempt in told.attempts]
    assert all(attempt.over for attempt in told.attempts)


def test_an_open_request_is_said_to_be_open(tmp_path: Path) -> None:
    """With the state in which the log leaves it."""
    told = told_of(tmp_path / "log", "arrive one a:4; tick; stall")

    assert "arrived in tick 3, still lookup when the log ends at tick 4" in str(told)
    assert told.plain()["attempts"][0]["open"]


@pytest.mark.parametrize(
    ("story", "rid", "says"),
    [
        ("miss_is_woken_by_our_own_write", "two", "launch 2, right after our own write of pages 0 to 4 was stored"),
        ("store_goes_down_and_comes_back", "five", "launch 2, as store 1 answered again"),
        ("hold_expires", "one", "launch 2, 2 ticks later"),
        ("anchor_is_lost", "one", "launch 2, at once"),
    ],
)
def test_what_woke_a_retry_is_told(tmp_path: Path, story: str, rid: str, says: str) -> None:
    """A write of ours, a store that recovered, a timer, or nothing but itself."""
    with AuditLog(tmp_path / "log") as log:
        play((STORY / f"{story}.txt").read_text(encoding="utf-8"), log.block)

    assert says in str(explain(tmp_path / "log", rid))


def test_data_says_the_same_as_sentences(tmp_path: Path) -> None:
    """Every moment with its cause by name, and its numbers."""
    plain = told_of(tmp_path / "log", SCENES["spliced"][0]).plain()
    (attempt,) = plain["attempts"]

    assert ["ASKED", "HIT", "FETCHING", "FETCHED", "SPLICED", "FINISHED"] == [m["cause"] for m in attempt["moments"]]
    assert {"tick": 6, "device_tokens": 0, "store_tokens": 64, "computed_tokens": 1, "at_least": False,
            "because": None} == attempt["reuse"]  # fmt: skip
    assert Verdict.FOUND.name == attempt["moments"][1]["verdict"]
    assert 64 == attempt["moments"][1]["facts"]["tokens"]


def test_a_log_of_other_declarations_is_not_explained(tmp_path: Path) -> None:
    """Its rows would be read as others."""
    with AuditLog(tmp_path / "log") as log:
        Journal(machines=(HOLD,), sink=log.block).close_block(0)

    with pytest.raises(BadLogError) as caught:
        explain(tmp_path / "log", "one")
    assert Damage.FOREIGN is caught.value.fault.damage


@pytest.mark.parametrize("value", [0, 5, 7 << 32])
def test_a_detail_of_no_known_meaning_is_said_as_a_number(value: int) -> None:
    """Rows whose effects return nothing leave 0."""
    said = audit_words.detail(HOLD, HOLD.rows[-1], value)

    assert (f"detail {value}" if value else "") == said
