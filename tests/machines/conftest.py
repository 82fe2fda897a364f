"""Small logs of real steppers: decisions and effects answer what the test hands to the step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagehold.machines import HandleKey, Journal, SpanKey, bind
from stagehold.machines.logs import AuditLog
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Answer, Commit, Evaluate, Fetched, IoCommit, Launch
from stagehold.specs.request import REQUEST


class Answers:
    """Every decision gives the first of the pair that the step was called with."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda _m, arg: arg[0]


class Details:
    """Every effect gives the second of that pair as its record's detail."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda _m, arg=None: arg[1] if arg else None


def write(path: Path, requests: int = 3, *, lost: bool = False, unfinished: bool = False) -> bytes:
    """A log of requests that each fetch a hold and finish, five ticks apart; the digest of its last block.

    `lost`: every commit delivers nothing. `unfinished`: a last request keeps its claim open.
    """
    with AuditLog(path) as log:
        journal = Journal(sink=log.block)
        bound = {"decisions": Answers(), "effects": Details(), "journal": journal, "arm": None, "strict": False}
        request, hold = bind(REQUEST, **bound), bind(HOLD, **bound)
        for n in range(requests + unfinished):
            tick = 5 * n
            asker = request.birth(None, HandleKey(f"r{n}", 0, b"ns"))
            request.issue(asker, (Launch.LOOKUP, 0))
            journal.close_block(tick)
            held = hold.birth(None, SpanKey(b"ns", bytes([n]) * 16, 0, 7))
            request.answer(asker, (Answer.HIT, 100 | held.number << 32))
            hold.io_commit(held, (IoCommit.PINNED, 0))
            request.finish(asker)  # refused: no request finishes before it is admitted
            journal.close_block(tick + 1)
            if n == requests:
                break
            hold.fetched(held, (Fetched.WHOLE, 0))
            hold.plan(held)
            request.evaluate(asker, (Evaluate.LOCKED, 0))
            if lost:
                hold.unplan(held)
                request.commit(asker, (Commit.NOTHING, 100 | 8 << 32))
            else:
                hold.load(held, (None, 0))
                request.commit(asker, (Commit.DELIVERED, 90 | 10 << 32))
                hold.loaded(held, (None, 0))
            journal.close_block(tick + 2)
            request.finish(asker, (None, 0))
            journal.close_block(tick + 4)
        log.summary(tick, requests=requests)
    return journal.digest


@pytest.fixture
def run_log(tmp_path: Path) -> Path:
    """A sound log of three requests."""
    write(tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


@pytest.fixture
def write_log() -> Callable[..., bytes]:
    """`write` itself, for tests that want another log."""
    return write
