"""The timer wheel: which machine gets which event at which tick.

A timer is found by the tick that it falls on, so a tick costs what is due in it and not what is waiting. A machine has
one timer at most; one that no longer applies, since its machine has moved on, is dropped when due.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol


class Timed(Protocol):
    """A machine instance as the wheel sees it."""

    state: IntEnum
    number: int


@dataclass(frozen=True, slots=True)
class Timer:
    """`event` for `machine`, provided that it is still in `state` and `serial` is its latest arming."""

    kind: str  # name of the machine's declaration
    machine: Timed
    state: IntEnum
    event: str
    serial: int


@dataclass(slots=True)
class Clock:
    """Ticks, and what falls due on each of them."""

    tick: int = 0
    _wheel: dict[int, dict[int, Timer]] = field(default_factory=dict)  # tick -> serial -> timer, in order of arming
    _latest: dict[int, tuple[int, int]] = field(default_factory=dict)  # machine number -> serial and tick of its timer
    _serial: int = 0
    _calls: set[int] = field(default_factory=set)

    def arm(self, kind: str, machine: Timed, deadline: tuple[IntEnum, str], ticks: int) -> None:
        """The deadline is (state, event): `event` in `ticks` ticks (at least one) if it is then still in `state`."""
        state, event = deadline
        self.disarm(machine)
        self._serial += 1
        due = self.tick + max(1, ticks)
        self._latest[machine.number] = (self._serial, due)
        self._wheel.setdefault(due, {})[self._serial] = Timer(kind, machine, state, event, self._serial)

    def call(self, ticks: int) -> None:
        """Make the tick in `ticks` ticks one in which blocked work is looked at again."""
        self._calls.add(self.tick + max(1, ticks))

    def called(self) -> bool:
        """Whether this tick was asked for with `call`."""
        if self.tick in self._calls:
            self._calls.discard(self.tick)
            return True
        return False

    def disarm(self, machine: Timed) -> None:
        """Forget the machine's timer; called when it ends, and when a state is entered without a timer.

        It is taken off the wheel, too: what a machine that is over refers to (a prompt, its keys) is not to be kept
        for the thousands of ticks that a limit may have left.
        """
        serial, due = self._latest.pop(machine.number, (0, 0))
        timers = self._wheel.get(due)
        if timers is not None:
            timers.pop(serial, None)
            if not timers:
                del self._wheel[due]

    def due(self) -> list[Timer]:
        """The timers of this tick that still apply, in the order in which they were armed."""
        timers = self._wheel.pop(self.tick, None)
        return [t for t in timers.values() if self.applies(t)] if timers else []

    def applies(self, timer: Timer) -> bool:
        """Whether the machine is where it was when armed; asked again right before the event is sent."""
        machine = timer.machine
        return self._latest.get(machine.number, (0, 0))[0] == timer.serial and machine.state is timer.state

    @property
    def armed(self) -> int:
        """Machines with a timer."""
        return len(self._latest)
