"""The audit log file: JSON lines from structlog that leave its global configuration alone."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import orjson
import pytest
import structlog

from stagehold.machines import HandleKey, Journal, bind, decode, replay
from stagehold.machines.logs import AuditLog
from stagehold.specs.outcomes import Launch
from stagehold.specs.request import REQUEST, RequestState


class Echo:
    def __getattr__(self, name: str) -> object:
        return lambda m, arg: arg


class Nothing:
    def __getattr__(self, name: str) -> object:
        return lambda m, arg: None


def lines(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def run(log: AuditLog) -> Journal:
    """A request that asks, and an event that is refused."""
    journal = Journal(sink=log.block)
    step = bind(REQUEST, decisions=Echo(), effects=Nothing(), journal=journal, arm=None, strict=False)
    m = step.birth(None, HandleKey("r", 0, b"ns"))
    step.issue(m, Launch.LOOKUP)
    step.finish(m)
    journal.close_block(3)
    return journal


def test_each_block_is_a_line_that_reads_back_as_the_same_block(tmp_path: Path) -> None:
    """From the file alone the state is rebuilt, with the digest of the live journal."""
    with AuditLog(tmp_path / "log") as log:
        journal = run(log)
    blocks = [decode(line) for line in lines(tmp_path / "log") if line["event"] == "block"]
    replayed = replay(blocks)
    assert replayed.digest == journal.digest
    assert replayed.instances[0].state is RequestState.LOOKUP


def test_a_refusal_is_a_line_of_its_own_with_names_instead_of_numbers(tmp_path: Path) -> None:
    """Who greps for refusals needs no tables."""
    with AuditLog(tmp_path / "log") as log:
        run(log)
    assert lines(tmp_path / "log")[1] == {
        "event": "refusal",
        "tick": 3,
        "instance": 0,
        "machine": "request",
        "state": "LOOKUP",
        "refused": "finish",
    }


def test_summaries_and_violations_are_lines_with_their_facts(tmp_path: Path) -> None:
    """Once a tick, or on trouble."""
    with AuditLog(tmp_path / "log") as log:
        log.summary(4, waiting=2)
        log.violation(4, "slots do not add up", owned=3, free=1)
    told = [
        {"event": "summary", "tick": 4, "waiting": 2},
        {"event": "violation", "tick": 4, "what": "slots do not add up", "owned": 3, "free": 1},
    ]
    assert lines(tmp_path / "log") == [{**facts, "seal": f"{crc32(orjson.dumps(facts)):08x}"} for facts in told]


def test_every_line_is_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    """A process that dies leaves the ticks that it closed."""
    with AuditLog(tmp_path / "log") as log:
        run(log)
        assert len(lines(tmp_path / "log")) == 2


def test_structlog_s_global_configuration_is_left_alone(tmp_path: Path) -> None:
    """The embedding application may have its own."""
    before = structlog.get_config()
    with AuditLog(tmp_path / "log") as log:
        run(log)
    assert structlog.get_config() == before
    assert not structlog.is_configured()


def test_a_closed_log_refuses_further_lines_and_closes_twice(tmp_path: Path) -> None:
    """The file handle is gone; nothing is lost silently."""
    log = AuditLog(tmp_path / "log")
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed file"):
        log.summary(0)


def test_an_embedder_s_structlog_configuration_changes_no_line(tmp_path: Path) -> None:
    """The log's processors are its own, whatever the application configures."""
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    try:
        with AuditLog(tmp_path / "log") as log:
            log.summary(1)
    finally:
        structlog.reset_defaults()
    (line,) = lines(tmp_path / "log")
    assert list(line) == ["event", "tick", "seal"]
