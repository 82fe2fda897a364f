"""Trying moves: each from the same situation, each on a board of its own.

Owns the list of what may happen next, and the set of clocks that run. Which moves there are is said in `visits`,
`ticks`, `writer` and `traffic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from stagehold.machines.explorer.board import Board
from stagehold.machines.explorer.effects import Effects
from stagehold.machines.explorer.moves import Clock, Labels, Move
from stagehold.machines.explorer.steps import Breach
from stagehold.specs.declare import MachineSpec
from stagehold.specs.worlds import World


class Play(Effects):
    """Collects the moves of one situation at a time: `now` is it, `out` is what may follow (label, situation)."""

    def __init__(self, world: World, specs: Mapping[str, MachineSpec]) -> None:
        super().__init__(world, specs)
        self.labels = Labels()
        self.bits: dict[tuple[Clock, int], int] = {}
        self.begin(next(self.beginnings()))

    def begin(self, situation: bytes) -> None:
        """From here on, moves are tried from `situation`."""
        self.now = situation
        self.out: list[tuple[int, bytes]] = []
        self.found: list[tuple[int, Breach]] = []
        self.armed = 0
        self.visiting = self.visit_is_open(situation)
        self.over = self.requests_ended(situation)

    def bit(self, clock: Clock, who: int) -> int:
        """The bit of one clock in `armed`."""
        found = self.bits.get((clock, who))
        if found is None:
            found = self.bits[(clock, who)] = 1 << len(self.bits)
        return found

    def play(self, move: Move, who: int, outcome: IntEnum | None, action: Callable[..., None], *args: Any) -> None:
        """Tries `action` on a board of its own. A fair move that can be made has its clock running."""
        board: Board = list(self.now)
        label = self.labels.number(move, who, outcome)
        if move.clock is not None:
            self.armed |= self.bit(move.clock, who)
        try:
            action(board, *args)
        except Breach as breach:
            self.found.append((label, breach))
            return
        after = bytes(board)
        if after != self.now or not move.repeats:
            self.out.append((label, after))

    def attempt(self, move: Move, who: int, place: int, event: str, outcome: IntEnum | None = None) -> None:
        """A move that is one event."""
        self.play(move, who, outcome, self.step, place, event, outcome)

    def repeat(self, move: Move, who: int, place: int, event: str, outcome: IntEnum | None = None) -> None:
        """A row that stays where it is on a clock: it is taken, and leaves no trace that a situation could show."""
        row = self.machine_at[place].rows.get((self.now[place], event, outcome))
        if row is not None and row.clocked and row.target == self.now[place]:
            self.taken[row.number] = 1
        else:
            self.attempt(move, who, place, event, outcome)

    def fire(self, move: Move, who: int, place: int, event: str, outcomes: Iterable[IntEnum | None] = (None,)) -> None:
        """A clock that runs: it stands still while a visit is open, and may fire at any tick."""
        assert move.clock is not None, "only clocks fire"
        self.armed |= self.bit(move.clock, who)
        if not self.visiting:
            for outcome in outcomes:
                self.attempt(move, who, place, event, outcome)
