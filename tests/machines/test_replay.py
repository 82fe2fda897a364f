"""Replay: states, counters and token totals from blocks alone, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagehold.machines import HandleKey, Journal, LogError, Machine, bind, replay, rows_of
from stagehold.machines.records import (
    Block,
    DiscontinuityError,
    ForeignDeclarationError,
    IllegalRowError,
    rest,
    tag,
)
from stagehold.specs.declare import MachineSpec
from stagehold.specs.outcomes import Agreed, Answer, Commit, Evaluate, Launch, Loss
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.tick import TICK, TickState
from stagehold.specs.write import WRITE

KEY = HandleKey("r", 0, b"ns")


class First:
    """Decisions answer with the first of the pair given to the step."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda m, arg: arg[0]


class Second:
    """Effects return the second."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda m, arg: arg[1] if arg else None


class Run:
    """A journal whose blocks are kept, and steppers on it."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.journal = Journal(sink=self.blocks.append)

    def stepper(self, spec: MachineSpec) -> Any:
        return bind(spec, decisions=First(), effects=Second(), journal=self.journal, arm=None, strict=False)


def hit(run: Run, queried: int = 100) -> tuple[Any, Machine]:
    """A request that was told of a hit."""
    step = run.stepper(REQUEST)
    m = step.birth(None, KEY)
    step.issue(m, (Launch.LOOKUP, 0))
    run.journal.close_block(0)
    step.answer(m, (Answer.HIT, queried))
    return step, m


def test_replay_rebuilds_state_and_counters_over_several_blocks() -> None:
    """What the live instance says, the log says."""
    run = Run()
    step, m = hit(run)
    step.evaluate(m, (Evaluate.LOCKED, 0))
    step.commit(m, (Commit.DEFERRED, 0))
    run.journal.close_block(1)
    replayed = replay(run.blocks)
    here = replayed.instances[m.number]
    assert (here.machine, here.state, here.counters) == ("request", m.state, {"issues": 1, "defers": 1})
    assert here.state is RequestState.STAGED
    assert replayed.digest == run.journal.digest


def test_a_splice_books_loaded_tokens_and_what_the_tree_had_by_then() -> None:
    """Low half spliced, high half lost to covered; the claim is closed."""
    run = Run()
    step, m = hit(run, queried=100)
    step.evaluate(m, (Evaluate.LOCKED, 0))
    step.commit(m, (Commit.DELIVERED, 70 | 30 << 32))
    run.journal.close_block(1)
    totals = replay(run.blocks).totals
    assert (totals.queried, totals.spliced, totals.losses[Loss.COVERED], totals.open) == (100, 70, 30, 0)


def test_a_loss_is_booked_under_the_number_in_its_high_half() -> None:
    """A claim that is aborted loses its tokens to that end."""
    run = Run()
    step, m = hit(run, queried=64)
    step.abort(m, (None, 64 | Loss.ABORTED << 32))
    run.journal.close_block(1)
    totals = replay(run.blocks).totals
    assert (totals.losses[Loss.ABORTED], sum(totals.losses.values()), totals.open) == (64, 64, 0)


def test_tokens_of_a_claim_that_has_not_ended_are_open() -> None:
    """queried = spliced + losses + open claims."""
    run = Run()
    hit(run, queried=10)
    run.journal.close_block(1)
    assert replay(run.blocks).totals.open == 10


def test_a_refused_event_is_counted_and_moves_nothing() -> None:
    """Refusals are in the log, and replay leaves the instance where it is."""
    run = Run()
    step, m = hit(run)
    step.finish(m)
    run.journal.close_block(1)
    replayed = replay(run.blocks)
    assert (replayed.totals.refused, replayed.instances[m.number].state) == (1, RequestState.STAGED)


@pytest.mark.parametrize(
    ("record", "error", "says"),
    [
        (tag(9) + rest(0, 0), IllegalRowError, "instance 9 of machine 0 was never born"),
        (tag(0) + rest(0, 200), IllegalRowError, "'request' has no row 200"),
        (tag(0) + rest(2, 0), IllegalRowError, "instance 0 of machine 2 was never born"),
        (tag(0) + rest(77, 0), IllegalRowError, "machine 77 was never born"),
        (tag(0) + rest(0, 7), DiscontinuityError, "leaves <RequestState.LOOKUP: 1>, but instance 0 is in"),
    ],
)
def test_a_record_that_cannot_be_is_named(record: bytes, error: type[LogError], says: str) -> None:
    """Each kind of impossible record has its own error."""
    run = Run()
    run.stepper(REQUEST).birth(None, KEY)
    run.journal.records.append(record)
    run.journal.close_block(0)
    with pytest.raises(error, match=says.replace("<", ".").replace(">", ".")):
        replay(run.blocks)


def test_a_number_that_is_born_twice_is_illegal() -> None:
    """Numbers name one instance for the life of an engine."""
    run = Run()
    step = run.stepper(WRITE)
    step.birth(None, KEY)
    run.journal.births *= 2
    run.journal.close_block(0)
    with pytest.raises(IllegalRowError, match="number given before"):
        replay(run.blocks)


def test_a_log_of_other_declarations_is_foreign() -> None:
    """Rows are numbers; read by other declarations they would mean something else."""
    run = Run()
    run.journal.close_block(0)
    with pytest.raises(ForeignDeclarationError, match="written by declarations"):
        replay(run.blocks, (WRITE,))


def test_the_tick_is_recorded_sparsely_and_replays_all_the_same() -> None:
    """Its ordinary pass leaves no record, so a record may begin in any living state."""
    run = Run()
    m = run.stepper(TICK).birth(None, KEY)
    index = next(i for i, row in enumerate(rows_of(TICK)) if row.outcome is Agreed.DIVERGED)
    run.journal.records += [m.tag, rest(6, index)]
    run.journal.close_block(0)
    assert replay(run.blocks).instances[0].state is TickState.STOPPED


def test_a_tick_that_has_stopped_takes_no_further_row() -> None:
    """Rows that leave no record lead on from anywhere but the end."""
    run = Run()
    m = run.stepper(TICK).birth(None, KEY)
    halt = next(index for index, row in enumerate(rows_of(TICK)) if row.event == "halt")
    run.journal.records += [tag(m.number), rest(run.journal.machine_index(TICK), halt)] * 2
    run.journal.close_block(0)

    with pytest.raises(DiscontinuityError, match=r"is in <TickState.STOPPED: 7>"):
        replay(run.blocks)
