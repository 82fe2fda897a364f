"""What is believed of the store: bounded in keys and ticks, taught and untaught, and renewed by no question."""

from __future__ import annotations

from stagehold.cache.beliefs import GRAINS, Beliefs

A, B, C = b"a", b"b", b"c"


def test_the_oldest_lesson_goes_first_when_there_are_too_many():
    """A capacity is one, in the order in which things were learned last."""
    beliefs = Beliefs(2)
    beliefs.teach([A])
    beliefs.teach([B])
    beliefs.teach([A])
    beliefs.teach([C])
    assert [True, False, True] == [beliefs.knows(key) for key in (A, B, C)]


def test_asking_renews_nothing():
    """A page that is asked for all the time is forgotten like any other."""
    beliefs = Beliefs(2)
    beliefs.teach([A])
    beliefs.teach([B])
    for ask in (beliefs.knows, beliefs.in_flight, beliefs.is_absent):
        ask(A)
    beliefs.teach([C])
    assert not beliefs.knows(A)


def test_a_belief_ends_after_its_ticks_and_not_before():
    """Within a 64th of them."""
    beliefs = Beliefs(10, keep_ticks=640)
    beliefs.age(100)
    beliefs.teach([A])
    beliefs.age(739)
    assert beliefs.knows(A)
    beliefs.age(740)
    assert not beliefs.knows(A)


def test_a_lesson_learned_again_lives_on():
    """What counts is when a page was last heard of."""
    beliefs = Beliefs(10, keep_ticks=640)
    beliefs.teach([A, B])
    beliefs.age(600)
    beliefs.teach([A])
    beliefs.age(660)
    assert (True, False) == (beliefs.knows(A), beliefs.knows(B))


def test_lessons_of_many_ticks_are_remembered_in_few_grains():
    """A busy server teaches in every tick; ages cost no more for it."""
    beliefs = Beliefs(10, keep_ticks=640)
    for tick in range(6_000):
        beliefs.age(tick)
        beliefs.teach([str(tick).encode()])
    assert len(beliefs._taught) <= GRAINS + 2
    assert 10 == len(beliefs)


def test_an_absence_counts_for_a_while():
    """Then the page may be there."""
    beliefs = Beliefs(10, absent_ticks=4)
    beliefs.deny(A)
    told = []
    for tick in range(1, 6):
        beliefs.age(tick)
        told.append(beliefs.is_absent(A))
    assert [True, True, True, False, False] == told


def test_what_is_learned_ends_an_absence():
    """An acknowledged write, or a query of somebody else."""
    beliefs = Beliefs(10, absent_ticks=4)
    beliefs.deny(A)
    beliefs.teach([A])
    assert (False, True) == (beliefs.is_absent(A), beliefs.knows(A))


def test_what_was_learned_since_is_not_denied():
    """The answer of a slow query says nothing against a write that was acknowledged meanwhile."""
    beliefs = Beliefs(10, absent_ticks=4)
    beliefs.teach([A])
    beliefs.deny(A)
    assert not beliefs.is_absent(A)


def test_absences_are_bounded_too():
    """By the same capacity."""
    beliefs = Beliefs(2, absent_ticks=4)
    for key in (A, B, C):
        beliefs.deny(key)
    assert [False, True, True] == [beliefs.is_absent(key) for key in (A, B, C)]


def test_without_ticks_nothing_is_absent():
    """Every launch asks."""
    beliefs = Beliefs(10)
    beliefs.deny(A)
    assert not beliefs.is_absent(A)


def test_several_writes_of_a_page_are_counted():
    """It is on its way until the last of them has ended, and then only believed if that was well."""
    beliefs = Beliefs(10)
    beliefs.depart([A])
    beliefs.depart([A])
    beliefs.arrive([A])
    assert beliefs.in_flight(A)
    beliefs.arrive([A])
    assert not beliefs.in_flight(A)
    assert not beliefs.knows(A)
