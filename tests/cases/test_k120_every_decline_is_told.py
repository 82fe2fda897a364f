"""K120: a store was not asked because of a rate limit, and nothing said so.

Here every launch that is declined has a counter under its reason, seeded before anything happens, and a moment in the
log of its request: `stagehold audit explain` tells a person why.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from stagehold import AuditLog
from stagehold.cli.main import app
from stagehold.operate.measures import series
from stagehold.operate.snapshot import Feed
from stagehold.specs.outcomes import Decline
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand


def busy(h: Hand) -> str:
    for family in (1, 2):
        h.arrive(f"r{family}", h.prompt(8, family))
    h.tick()
    return "r2"


def full(h: Hand) -> str:
    h.arrive("late", h.prompt(8))
    h.until(lambda: h.taken("request.lookup.answer.MISS"), 9)
    for family in (2, 3):
        h.put(h.prompt(20, family))
        h.arrive(f"full-{family}", h.prompt(20, family))
    h.until(lambda: h.taken("request.retry.due.DECLINED"), 20)
    return "late"


def absent(h: Hand) -> str:
    h.arrive("first", h.prompt(8))
    h.tick(2)
    h.arrive("second", h.prompt(8))
    h.tick()
    return "second"


def losing(h: Hand) -> str:
    """Waiting has cost more than computing so far."""
    h.core.gate.lost = 1_000_000
    h.arrive("a", h.prompt(8))
    h.tick(2)
    return "a"


STORIES = {
    Decline.QUERY_RATE: ({"query_limit": 1}, busy, "1 lookups were in flight"),
    Decline.LOAD_LIMIT: ({"delays": SLOW_GETS}, full, "staging"),
    Decline.ABSENT: ({"delays": AT_ONCE}, absent, "was just heard to have not"),
    Decline.LOSING: ({"fetch_gate": "auto", "prefill_tokens_per_tick": 1_000}, losing, "computing"),
}


def declines(h: Hand) -> dict[str, float]:
    found = series(Feed(h.engine).latest)
    return {labels[0]: value for (name, labels), value in found.items() if name == "declined_launches"}


@pytest.mark.parametrize("reason", Decline)
def test_a_decline_is_counted_and_told_by_request(tmp_path, reason):
    """The counter was there with 0; the explanation of the request names the reason."""
    options, act, says = STORIES[reason]
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log, Hand(engine_options={"sink": log.block}, **options) as h:
        assert {one.name.lower(): 0 for one in Decline} == declines(h)
        rid = act(h)
        assert 1 == declines(h)[reason.name.lower()]
        h.tick()
    done = CliRunner().invoke(app, ["audit", "explain", rid, str(path)])
    assert 0 == done.exit_code, done.output
    assert says in done.stdout


def test_every_reason_has_its_story():
    """A new reason needs one."""
    assert set(Decline) == set(STORIES)
