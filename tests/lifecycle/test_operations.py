"""Operations in flight: numbers, places in the exchange, and facts that count only once they are agreed."""

from __future__ import annotations

import numpy as np

from stagehold.cache.stores.protocol import Progress, Verdict
from stagehold.lifecycle.operations import Kind, Operations

HIT, MISS, FAILED = Verdict.HIT, Verdict.MISS, Verdict.FAILED


def begun(window: int, count: int) -> tuple[Operations, list[int]]:
    """Operations of which `count` were begun; the numbers that were sent off, in order."""
    sent: list[int] = []
    operations = Operations(window)
    for owner in range(count):
        operations.begin(Kind.QUERY, owner, sent.append)
    return operations, sent


def agreed(operations: Operations) -> list[int]:
    """Numbers of the operations that end when this rank's facts are everybody's."""
    return [operation.number for operation in operations.apply(operations.facts().copy())]


def test_numbers_ascend_and_places_are_taken_in_order():
    """The same on every rank that did the same."""
    operations, sent = begun(4, 3)
    assert [1, 2, 3] == sent
    assert [0, 1, 2] == [operations.live[number].place for number in sent]


def test_without_a_place_an_operation_waits_its_turn():
    """Oldest first, whichever place comes free."""
    operations, sent = begun(2, 4)
    assert [1, 2] == sent
    operations.note([Progress(2, done=True, good=1, verdicts=(HIT,))])
    assert [2] == agreed(operations)
    operations.place()
    assert ([1, 2, 3], 1) == (sent, operations.live[3].place)


def test_a_local_fact_is_no_event():
    """Nothing ends that the other rank has not seen."""
    operations, _ = begun(2, 1)
    operations.note([Progress(1, done=True, good=1, verdicts=(HIT,))])
    other, _ = begun(2, 1)
    assert [] == operations.apply(np.minimum(operations.facts(), other.facts()))
    assert 1 in operations.live
    assert [1] == agreed(operations)


def test_good_pages_are_those_of_the_shortest_rank():
    """A page counts once every rank has it."""
    mine, _ = begun(2, 1)
    theirs, _ = begun(2, 1)
    mine.note([Progress(1, done=True, good=5, verdicts=(HIT,) * 5)])
    theirs.note([Progress(1, done=True, good=3, verdicts=(HIT,) * 3 + (MISS,) * 2)])
    (operation,) = mine.apply(np.minimum(mine.facts(), theirs.facts()))
    assert (3, False) == (operation.good, operation.fault)


def test_one_rank_s_fault_is_everybody_s():
    """The worst counts, and a plain miss is none."""
    mine, _ = begun(2, 1)
    theirs, _ = begun(2, 1)
    mine.note([Progress(1, done=True, good=0, verdicts=(MISS,))])
    theirs.note([Progress(1, done=True, good=0, verdicts=(FAILED,))])
    (operation,) = mine.apply(np.minimum(mine.facts(), theirs.facts()))
    assert operation.fault


def test_ended_operations_come_in_the_order_of_their_numbers():
    """Not of their places, and not of their arrival."""
    operations, _ = begun(2, 3)
    operations.note([Progress(1, done=True, good=1, verdicts=(HIT,))])
    agreed(operations)
    operations.place()  # number 3 gets the place of number 1, before number 2's
    operations.note([Progress(n, done=True, good=1, verdicts=(HIT,)) for n in (3, 2)])
    assert [2, 3] == agreed(operations)


def test_progress_of_unknown_numbers_changes_nothing():
    """Late completions of what is over."""
    operations, _ = begun(2, 1)
    before = operations.facts().copy()
    operations.note([Progress(99, done=True, good=4, verdicts=(HIT,) * 4)])
    assert before.tolist() == operations.facts().tolist()


def test_a_place_that_is_used_again_starts_from_nothing():
    """No fact of the old operation reaches the new one."""
    operations, _ = begun(1, 2)
    operations.note([Progress(1, done=True, good=7, verdicts=(FAILED,))])
    agreed(operations)
    operations.place()
    assert 0 == operations.facts().any()
    assert [] == agreed(operations)


def test_only_what_was_never_sent_off_can_be_withdrawn():
    """What flies ends by its IO."""
    operations, sent = begun(1, 2)
    first, second = operations.live[1], operations.live[2]
    assert (False, True) == (operations.withdraw(first), operations.withdraw(second))
    assert ([1], [1]) == (sent, list(operations.live))


def test_what_was_ready_counts_on_a_rank_that_has_heard_nothing():
    """Else a rank that has heard of a page would count fewer than one that has not."""
    mine, _ = begun(2, 1)
    theirs, _ = begun(2, 1)
    for one in (mine, theirs):
        one.live[1].ready = one.live[1].good = 3
    mine.note([Progress(1, done=False, good=1, verdicts=(HIT,))])
    least = np.minimum(mine.facts(), theirs.facts())
    assert ([], []) == (mine.apply(least), theirs.apply(least))
    assert (3, 3) == (mine.live[1].good, theirs.live[1].good)
