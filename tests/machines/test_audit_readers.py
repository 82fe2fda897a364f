"""What the other readers of a log tell: replay, differences, counts and timelines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stagehold.machines import audit, heat
from stagehold.machines.audit import BadLogError, Damage, Differs
from stagehold.machines.timeline import timelines
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.request import REQUEST, RequestState

WriteLog = Callable[..., bytes]


def test_replay_ends_in_the_states_of_the_run(run_log: Path) -> None:
    """Every instance stands where its last row led it, with the counters that its rows moved."""
    replayed = audit.replay(run_log)

    assert [RequestState.FINISHED] * 3 == [s.state for s in replayed.instances.values() if s.machine == "request"]
    assert [HoldState.SPLICED] * 3 == [s.state for s in replayed.instances.values() if s.machine == "hold"]
    assert {"issues": 1, "defers": 0} == replayed.instances[0].counters


def test_replay_names_the_line_it_cannot_follow(run_log: Path) -> None:
    """A block that the rows cannot have written is named with its line."""
    lines = run_log.read_text().splitlines(keepends=True)
    run_log.write_text("".join([*lines[:3], *lines[4:]]))

    with pytest.raises(BadLogError) as caught:
        audit.replay(run_log)

    fault = caught.value.fault
    assert (Damage.DISCONTINUOUS, 4, 3) == (fault.damage, fault.line, fault.block)


def test_a_log_does_not_differ_from_itself(run_log: Path, tmp_path: Path, write_log: WriteLog) -> None:
    """Two runs of the same thing tell the same."""
    write_log(tmp_path / "again")

    assert audit.diff(run_log, tmp_path / "again") is None


def test_the_first_differing_record_is_named(run_log: Path, tmp_path: Path, write_log: WriteLog) -> None:
    """Tick, instance and event of the first record that is not the same, and what each log says."""
    write_log(tmp_path / "other", lost=True)
    found = audit.diff(run_log, tmp_path / "other")

    assert found is not None
    assert (Differs.RECORD, 2, 2, "hold 1", "load") == (
        found.differs, found.block, found.tick, found.instance, found.event,
    )  # fmt: skip
    assert ("hold 1: planned, load → loading", "hold 1: planned, unplan → ready") == (found.expected, found.found)


def test_a_shorter_log_differs_where_it_ends(run_log: Path, tmp_path: Path, write_log: WriteLog) -> None:
    """The block that one log has and the other lacks, told from both sides."""
    write_log(tmp_path / "longer", requests=4)
    there, back = audit.diff(run_log, tmp_path / "longer"), audit.diff(tmp_path / "longer", run_log)

    assert there is not None
    assert back is not None
    assert (Differs.LENGTH, 12, "nothing") == (there.differs, there.block, there.expected)
    assert (Differs.LENGTH, 12, "nothing") == (back.differs, back.block, back.found)


def changed(path: Path, line: int, **fields: object) -> Path:
    """A copy of a log with other fields on one line (from 0); its hashes are left as they were."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] |= fields
    copy = path.with_name("changed.jsonl")
    copy.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return copy


@pytest.mark.parametrize(
    ("fields", "differs", "expected", "found"),
    [
        ({"declaration": "00" * 16}, Differs.DECLARATION, None, "00" * 16),
        ({"tick": 7}, Differs.TICK, "tick 0", "tick 7"),
        ({"births": []}, Differs.BIRTH, "request 0 (r0 #0) born in queued", "nothing"),
        ({"records": ""}, Differs.RECORD, "request 0: queued, issue [launch: LOOKUP] → lookup", "nothing"),
    ],
)
def test_everything_that_a_block_tells_is_compared(
    run_log: Path, fields: dict[str, object], differs: Differs, expected: str | None, found: str
) -> None:
    """Declaration, tick, births and records each have their own difference."""
    difference = audit.diff(run_log, changed(run_log, 0, **fields))

    assert difference is not None
    assert (differs, 0, found) == (difference.differs, difference.block, difference.found)
    assert expected in (None, difference.expected)


def test_a_difference_of_two_unreadable_logs_is_an_error(run_log: Path, tmp_path: Path) -> None:
    """What cannot be read is not compared."""
    (tmp_path / "junk").write_text("junk\n")

    with pytest.raises(BadLogError, match=r"junk:1: not a line of an audit log"):
        audit.diff(run_log, tmp_path / "junk")


def test_stats_count_what_the_log_holds(run_log: Path) -> None:
    """Blocks, ticks, births, ends, refusals and tokens."""
    counts = audit.stats(run_log)

    assert (12, 33, 0, 14) == (counts.blocks, counts.records, counts.first_tick, counts.last_tick)
    assert (3, 3, 3, 0) == (
        counts.births["request"],
        counts.births["hold"],
        counts.refused["request"],
        counts.births["tick"],
    )
    assert {"finished": 3, "retracted": 0, "aborted": 0} == counts.ends["request"]
    assert audit.verify(run_log).totals == counts.totals


def test_heat_counts_each_declared_row(run_log: Path) -> None:
    """A taken row has its count at its place; the others are named as never taken."""
    counts = audit.stats(run_log)
    taken = {row.why: count for row, count in zip(HOLD.rows, counts.taken["hold"], strict=True)}

    assert 3 == taken["anchor live and pinned"]
    assert 0 == taken["anchor gone"]
    assert 5 == len(HOLD.rows) - len(counts.never(HOLD))


def test_a_row_from_any_state_is_counted_once() -> None:
    """The expanded rows of `abort` add up at the place of the declared one."""
    words = dict.fromkeys(range(len(list(REQUEST.expanded()))), 1)
    counts = heat._taken(REQUEST, np.array(list(words.values())))

    assert 9 == counts[[row.event for row in REQUEST.rows].index("abort")]
    assert len(REQUEST.rows) == len(counts)
    assert len(words) == sum(counts)


def test_the_heat_table_marks_rows_never_taken(run_log: Path) -> None:
    """Each machine's rows with their counts; those never taken stand out."""
    text = heat.markdown(audit.stats(run_log))

    assert "| 3 | parked | io_commit [io_commit: PINNED] / fetch +staging +pin +io | fetching |" in text
    assert "| **never** | parked | io_commit [io_commit: LOST] / tell | lost |" in text
    assert "5 of 27 rows taken; 3 instances, 15 steps, 0 refused." in text


def test_a_timeline_has_a_lane_for_the_request_and_its_hold(run_log: Path) -> None:
    """Every step of both, in order, with tick and state."""
    shown = timelines(run_log)
    first = shown.requests[0]

    assert ("request 0: r0 #0", "hold 1: pages 0 to 7 of …00000000") == tuple(lane.title for lane in first.lanes)
    assert ["queued", "lookup", "staged", "staged", "anchor_locked", "committed", "finished"] == [
        step.state for step in first.lanes[0].steps
    ]
    assert [0, 0, 1, 1, 2, 2, 4] == [step.tick for step in first.lanes[0].steps]
    assert "finish (refused)" == first.lanes[0].steps[3].event
    assert ["parked", "fetching", "ready", "planned", "loading", "spliced"] == [
        step.state for step in first.lanes[1].steps
    ]


def test_timelines_keep_the_requests_with_the_most_steps(tmp_path: Path, write_log: WriteLog) -> None:
    """A page holds so many; what is left out is counted, and the one that did less goes first."""
    write_log(tmp_path / "log", requests=2, unfinished=True)
    shown = timelines(tmp_path / "log", requests_max=2)

    assert ["request 0: r0 #0", "request 2: r1 #0"] == [request.title for request in shown.requests]
    assert 1 == shown.left_out


def test_timelines_keep_the_requests_that_are_wanted(tmp_path: Path, write_log: WriteLog) -> None:
    """Whatever the others did; what was never born is no request."""
    write_log(tmp_path / "log", requests=3)
    shown = timelines(tmp_path / "log", requests_max=1, wanted=("r2", "r9"))

    assert ["r2 #0"] == [request.title.rpartition(": ")[2] for request in shown.requests]
    assert 2 == shown.left_out
