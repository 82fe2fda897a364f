"""What an operator reads: a line at the start, one a minute, counted alarms, and nothing of single requests."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from stagehold import ComponentConfig, ComponentKind
from stagehold.machines.audit_read import Block, read_line
from stagehold.machines.logs import AuditLog
from stagehold.operate.logs import ALARMS, Repeating, Reporter, start_line
from stagehold.operate.snapshot import Feed
from stagehold.testing.hand import Hand, small_config


def reporter(h: Hand, clock, **options) -> Reporter:
    return Reporter(Feed(h.engine, pace_seconds=0, clock=clock, wall=lambda: 0.0), **options)


def step(told: Reporter, clock, seconds: float) -> None:
    clock.now += seconds
    told._feed.tick()
    told.look()


def test_the_first_three_occurrences_and_each_thousandth() -> None:
    """With the count, however they come in."""
    told: list[str] = []
    alarms = Repeating(told.append)
    for _ in range(3_005):
        alarms.note("disk", 1, "is full")
    assert [1, 2, 3, 1000, 2000, 3000] == [int(line.split("occurrence ")[1][:-1].replace(",", "")) for line in told]
    assert "disk: is full (occurrence 1)" == told[0]
    told.clear()
    alarms.note("disk", 0, "is full")
    alarms.note("disk", 990, "is full")
    assert [] == told
    alarms.note("disk", 10, "is full")
    assert ["disk: is full (occurrence 4,005)"] == told
    assert 4_005 == alarms.counts["disk"]


def test_the_line_at_the_start_has_the_arithmetic() -> None:
    """Pin cap, staging and window, each with the numbers that it comes from."""
    window = ComponentConfig(
        name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=64, device_pages=64, staging_pages=16
    )
    config = small_config(components=(window,))
    line = start_line(config)
    assert f"pin cap min(0.5 x 64, 64 - 32) = {config.pin_cap} pages" in line
    assert f"fetches default of buffer_only of staging = {config.load_limit_pages} pages" in line
    assert "swa: window 64 tokens = 4 pages, staging 16" in line
    assert "1 + 8 = 9" in line


def test_a_summary_a_minute_and_no_line_for_a_request(hand, clock, caplog, tmp_path) -> None:
    """Above debug; the audit log has the summary, too, and what happened to each request."""
    caplog.set_level(logging.INFO)
    audit = AuditLog(tmp_path / "a.jsonl")
    h = hand(engine_options={"sink": audit.block})
    told = reporter(h, clock, audit=audit)
    h.put(h.prompt(6), 0, 6)
    for number in range(12):
        handle = h.arrive(f"r{number}", h.prompt(6))
        for _ in range(10):
            step(told, clock, 1.0)
        h.serve(handle)
    h.engine.close()
    audit.close()
    lines = [record.getMessage() for record in caplog.records]
    assert 1 == sum(line.startswith("started: ") for line in lines)
    summaries = [line for line in lines if line.startswith("tick ")]
    assert 2 == len(summaries) == len(lines) - 1
    assert "admitted 5; store and host memory: found 96 tokens, reused 96 (100 %)" in summaries[0]
    assert "store attached, breaker healthy" in summaries[0]
    texts = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    notes = [read_line(tmp_path, 1, text) for text in texts]
    assert 2 == sum(not isinstance(note, Block) and note["event"] == "summary" for note in notes)


def test_an_outage_is_an_alarm_and_not_one_for_every_request(hand, clock, caplog) -> None:
    """It is told when the breaker trips."""
    h = hand()
    told = reporter(h, clock)
    h.outage()
    for _ in range(5):
        step(told, clock, 1.0)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [
        "store tripped: too many operations of the store failed; it rests, and requests recompute (occurrence 1)"
    ] == lines


def test_alarms_count_what_the_statistics_count(hand) -> None:
    """Each is a figure that starts at zero and can move."""
    stats = hand().engine.stats()
    assert [0] * len(ALARMS) == [alarm.count(stats) for alarm in ALARMS]
    moving = SimpleNamespace(violations=2, wrong_beliefs=3, count=lambda _name: SimpleNamespace(taken=1))
    assert [2, 2, 3, 1, 2] == [alarm.count(moving) for alarm in ALARMS]
