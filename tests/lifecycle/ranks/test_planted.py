"""What one rank of three may do wrong: each is caught in the next exchange, with the right first record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stagehold import Diverged
from stagehold.lifecycle.operations import ENDED, Kind, Operation
from stagehold.lifecycle.ranks.testimony import Divergence
from stagehold.machines import MACHINES, rows_of
from stagehold.machines.audit_diff import diff
from stagehold.machines.labels import row_name
from stagehold.specs.tick import TICK
from stagehold.testing.hand import Hand

PLANTED: dict[str, Callable[[Hand], None]] = {}


def planted(wrong: Callable[[Hand], None]) -> Callable[[Hand], None]:
    PLANTED[wrong.__name__] = wrong
    return wrong


@planted
def a_loop_that_ends_early(hand: Hand) -> None:
    """Of several operations that ended in one tick only the first is acted on."""
    operations = hand.core.operations
    real = operations.apply
    patch(hand.engine._parts.phases, "end", first_of_each_tick(hand, real))


def first_of_each_tick(hand: Hand, _real: Any) -> Any:
    phases, last = hand.engine._parts.phases, [-1]
    end = phases.end

    def early(operation: Operation) -> None:
        if last[0] != hand.now:
            last[0] = hand.now
            end(operation)

    return early


def patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@planted
def an_order_of_a_set(hand: Hand) -> None:
    """Arrivals are launched in another order than they came."""
    phases = hand.engine._parts.phases
    launch = phases._launch

    def shuffled() -> None:
        phases.arrivals.reverse()
        launch()

    patch(phases, "_launch", shuffled)


@planted
def a_look_at_the_clock(hand: Hand) -> None:
    """A retry waits until some time has passed, however many ticks that is."""
    retries, begin = hand.engine._parts.retries, time.monotonic()
    pace = retries.pace

    def by_the_clock(m: Any) -> None:
        pace(m)
        if time.monotonic() > begin:
            hand.core.post(retries._send_due, m)

    patch(retries, "pace", by_the_clock)


@planted
def a_dropped_completion(hand: Hand) -> None:
    """The third fetch that ends is forgotten."""
    phases, count = hand.engine._parts.phases, [0]
    end = phases.end

    def forgetful(operation: Operation) -> None:
        count[0] += operation.kind is Kind.FETCH
        if operation.kind is not Kind.FETCH or count[0] != 3:
            end(operation)

    patch(phases, "end", forgetful)


def by_own_facts(hand: Hand) -> Any:
    operations = hand.core.operations
    real = type(operations).apply
    return lambda _agreed: real(operations, operations.facts().copy())


class Own:
    """Stands in for the operations of a rank, but for what is agreed."""

    def __init__(self, inner: Any, apply: Any) -> None:
        self._inner = inner
        self.apply = apply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@planted
def acting_on_arrival(hand: Hand) -> None:
    """What ended here is acted on, whether or not it has ended elsewhere."""
    hand.core.operations = Own(hand.core.operations, by_own_facts(hand))


@planted
def counts_instead_of_identities(hand: Hand) -> None:
    """As many operations end as was agreed, but the youngest that this rank has seen end."""
    operations = hand.core.operations
    real = type(operations).apply

    def counted(agreed: Any) -> list[Operation]:
        count = int((agreed[: operations.window] == ENDED).sum())
        own = operations.facts().copy()
        done = [place for place in range(operations.window) if own[place]]
        for place in done[: len(done) - count]:
            own[place] = 0
        return real(operations, own)

    hand.core.operations = Own(operations, counted)


@planted
def a_capacity_of_its_own(hand: Hand) -> None:
    """Staging is called full where it is not."""
    holds = hand.engine._parts.holds
    real, tries = holds._has_staging, [0]

    def stingy(*args: Any) -> bool:
        tries[0] += 1
        return tries[0] != 4 and real(*args)

    patch(holds, "_has_staging", stingy)


@planted
def a_belief_of_its_own(hand: Hand) -> None:
    """What was learnt about the store is forgotten."""
    patch(hand.core.beliefs, "knows", lambda _key: False)


@planted
def a_breaker_of_its_own(hand: Hand) -> None:
    """Faults that were seen here alone are counted."""
    phases = hand.engine._parts.phases
    end = phases.end

    def alarmed(operation: Operation) -> None:
        if operation.kind is Kind.QUERY:
            phases._observe(operation.epoch, fault=True)
        end(operation)

    patch(phases, "end", alarmed)


@planted
def an_eviction_of_its_own(hand: Hand) -> None:
    """Memory was short here, and the tree gave some."""
    tree, evict = hand.core.tree, hand.core.tree.evict
    visited = hand.engine._parts.visits.select

    def squeezed(*args: Any) -> Any:
        evict(min(1, tree.evictable))
        return visited(*args)

    patch(hand.engine._parts.visits, "select", squeezed)


@planted
def an_abort_that_comes_late(hand: Hand) -> None:
    """A client's hanging up is noticed one tick after the others."""
    engine, abort, tick = hand.engine, hand.engine.abort, hand.engine.tick
    put_off: list[Any] = []

    def later(handle: Any) -> None:
        put_off.append(handle)

    def then() -> None:
        tick()
        while put_off:
            abort(put_off.pop())

    patch(engine, "abort", later)
    patch(engine, "tick", then)


def first_difference(ranks: Any) -> int:
    """The tick of the first block that is not the same on ranks 0 and 1, as the blocks themselves tell."""
    pairs = zip(ranks[0].blocks, ranks[1].blocks, strict=False)
    return next(ours.tick for ours, theirs in pairs if (ours.births, ours.records) != (theirs.births, theirs.records))


def test_a_crowd_of_ranks_that_do_nothing_wrong_stays_equal(crowd: Any) -> None:
    """Different speeds notwithstanding; one exchange a tick, and not one more."""
    found = crowd()
    assert [None] * 3 == [outcome.error for outcome in found.outcomes]
    ticks = found.ranks[0].hand.now
    assert (ticks, 0) == (found.exchanges, found.gathers)
    logs = {log.read_bytes() for log in found.logs}
    assert 1 == len(logs)
    stats = found.ranks[0].hand.engine.stats()
    assert stats.spliced > 0
    assert stats.count("hold_io_commit_no_staging").taken + stats.count("hold_io_commit_head_busy").taken > 0


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_divergence_is_caught_in_the_next_exchange(crowd: Any, name: str) -> None:
    """Nothing of that tick is applied, on any rank; all name the same first record, which the log pair has, too."""
    found = crowd(PLANTED[name])
    errors = found.diverged()
    parted = first_difference(found.ranks)

    for error in errors:
        assert str(error).startswith(f"tick {parted + 1}: rank 1 differs from rank 0: tick {parted}, ")
        assert (1, 0) == (error.divergence.wrong, error.divergence.right)
    assert 1 == len({str(error) for error in errors})
    assert 1 == found.gathers
    assert diff(found.logs[0], found.logs[1]) == errors[0].divergence.difference
    for rank, block in found.seen.items():
        last = block.table()[-1]
        machine, row = divmod(int(last["row"]), 256)
        assert parted + 1 == block.tick
        assert "tick.agreeing.agreed.DIVERGED" == row_name(TICK, rows_of(MACHINES[machine])[row]), rank


def test_ten_and_more_were_planted() -> None:
    """Of different kinds each."""
    assert len(PLANTED) >= 10


def test_operations_in_other_places_are_caught_though_the_records_are_the_same(crowd: Any) -> None:
    """Facts of one would be taken for those of the other; the message names both lists."""

    def swapped(hand: Hand) -> None:
        operations = hand.core.operations
        free = operations._free
        free[0], free[1] = free[1], free[0]

    errors = crowd(later={3: swapped}).diverged()
    text = str(errors[0])
    assert "rank 1 differs from rank 0: other operations are in flight; operations of rank 0: " in text
    ours, theirs = errors[0].divergence.operations
    assert ours != theirs
    assert all(any(told in text for told in side) for side in (ours[:1], theirs[:1]))


def test_a_rank_that_was_started_otherwise_is_caught_in_the_first_exchange(crowd: Any) -> None:
    """The option is named, with both values, before anything has happened."""
    from stagehold.testing.ranks import in_turns

    def program(member: Any) -> None:
        with Hand(attach=False, engine_options={"group": member}, staging_pages=40 + 2 * (member.rank == 2)) as hand:
            hand.tick()

    _, outcomes = in_turns(3, 1, program)
    for outcome in outcomes:
        assert isinstance(outcome.error, Diverged)
        said = "tick 1: rank 2 differs from rank 0: started with another staging_pages: expected 40, found 42"
        assert str(outcome.error).startswith(said)


def test_a_rank_that_has_nothing_in_flight_is_said_to_have_none() -> None:
    """The list of the other is told; where both are empty, neither is."""
    told = Divergence(0, 1, "a record", None, (("4 query of 3 at 0 done, 2 good",), ()), salvageable=True)
    assert str(told).endswith("; operations of rank 0: 4 query of 3 at 0 done, 2 good; of rank 1: none")
    assert str(replace(told, operations=((), ()))) == "rank 1 differs from rank 0: a record"
