"""The timer wheel: what falls due when, in which order, and what never fires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from stagehold.lifecycle.clock import Clock


class Place(IntEnum):
    HERE = 0
    THERE = 1


@dataclass
class Thing:
    number: int
    state: IntEnum = Place.HERE


def fired(clock: Clock, ticks: int) -> list[tuple[int, int]]:
    """Tick and machine of everything that falls due in the next `ticks` ticks."""
    found = []
    for _ in range(ticks):
        clock.tick += 1
        found += [(clock.tick, timer.machine.number) for timer in clock.due()]
    return found


def test_a_timer_falls_due_exactly_once_at_its_tick():
    """Neither before nor after."""
    clock = Clock()
    clock.arm("m", Thing(1), (Place.HERE, "late"), 5)
    assert [(5, 1)] == fired(clock, 20)


def test_a_limit_of_nothing_falls_due_in_the_next_tick():
    """Never in the present one, which is over for it."""
    clock = Clock()
    clock.arm("m", Thing(1), (Place.HERE, "late"), 0)
    assert [(1, 1)] == fired(clock, 3)


def test_timers_of_one_tick_fire_in_the_order_of_their_arming():
    """Whatever their machines' numbers."""
    clock = Clock()
    for number in (3, 1, 2):
        clock.arm("m", Thing(number), (Place.HERE, "late"), 4)
    assert [(4, 3), (4, 1), (4, 2)] == fired(clock, 4)


def test_a_new_arming_replaces_the_old_one():
    """Sooner or later, only the last counts."""
    clock, thing = Clock(), Thing(1)
    clock.arm("m", thing, (Place.HERE, "late"), 3)
    clock.arm("m", thing, (Place.HERE, "late"), 8)
    assert [(8, 1)] == fired(clock, 20)


def test_a_machine_that_has_moved_on_is_left_alone():
    """The timer was for the state that it was armed in."""
    clock, thing = Clock(), Thing(1)
    clock.arm("m", thing, (Place.HERE, "late"), 3)
    thing.state = Place.THERE
    assert [] == fired(clock, 5)


def test_a_disarmed_machine_is_left_alone_and_forgotten():
    """Nothing counts it as armed any more."""
    clock, thing = Clock(), Thing(1)
    clock.arm("m", thing, (Place.HERE, "late"), 3)
    assert 1 == clock.armed
    clock.disarm(thing)
    assert (0, []) == (clock.armed, fired(clock, 5))


def test_what_an_earlier_timer_of_the_tick_has_moved_no_longer_applies():
    """It is asked again right before the event is sent."""
    clock, one, two = Clock(), Thing(1), Thing(2)
    for thing in (one, two):
        clock.arm("m", thing, (Place.HERE, "late"), 1)
    clock.tick += 1
    first, second = clock.due()
    two.state = Place.THERE
    assert (True, False) == (clock.applies(first), clock.applies(second))


def test_a_tick_that_was_asked_for_is_answered_once():
    """`call` wakes what is blocked, at its tick and never again."""
    clock = Clock()
    clock.call(2)
    answers = []
    for _ in range(4):
        clock.tick += 1
        answers.append(clock.called())
    assert [False, True, False, False] == answers


def test_a_wheel_forgets_the_ticks_that_are_over():
    """Ten thousand armings leave as much as is still to come."""
    clock = Clock()
    for _ in range(10_000):
        clock.arm("m", Thing(1), (Place.HERE, "late"), 7)
        clock.tick += 1
        clock.due()
    assert len(clock._wheel) <= 7
