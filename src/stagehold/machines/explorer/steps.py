"""One step of one machine on the board, as its declared row says.

Owns the writing of states and resource sets, and the checks that belong to a single step: a row must exist, what
is released must be owned, a counter must keep its limit, staging must outlive the IO that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import EMPTY, OWNS, STATE, UNBORN, Board
from stagehold.machines.explorer.facts import LOADING, Facts
from stagehold.machines.explorer.tables import IO, PIN, STAGING, Binder, RowFacts, Rule, Table
from stagehold.specs.declare import Kind, MachineSpec, Row
from stagehold.specs.request import RequestState
from stagehold.specs.worlds import World

BUFFERS = STAGING | PIN | IO
FORGETFUL = (RequestState.CAPPED, RequestState.COMMITTED)
"""States of a request from which it can never come back to the store: its counters and clocks no longer matter."""


NO_RULE_NEEDED = {
    "request_admit": "Lock and slots are taken by the row.",
    "request_admit_unanswered": "As `admit`; the query is given back by the row.",
    "request_finish": "Publishing and offering are moves of their own here: the tree may grow, a write may be offered.",
    "request_retract": "The next attempt is a new handle, which the end of this one brings.",
    "hold_loaded": "Staging and ticket are given back by the row.",
    "hold_drained": "Staging and ticket are given back by the row.",
    "write_enqueue": "The backlog is charged by the row.",
    "write_refuse": "Nothing was taken.",
    "write_put_hosted": "References to pages of the host tier: no unit of staging beyond theirs.",
    "write_unqueue": "The backlog is given back by the row.",
    "write_put": "The next IO reads the same staging.",
    "write_give_up": "All is given back by the row.",
    "write_keep": "As `give_up`; that host memory has pages is a fact of its own here.",
    "write_back_off": "Waits for its next try without staging.",
    "write_let_drain": "Only the IO keeps the staging now.",
    "write_drained": "Staging and ticket are given back by the row.",
    "store_rest": "Nobody asks from now on; nothing else changes.",
    "store_rest_longer": "As `rest`.",
    "store_probe": "The probe is taken by the row.",
    "store_close": "The probe, if there is one, is given back by the row.",
}
"""Effects that leave no trace in the abstract world, with the reason."""


class Fault(Enum):
    """What a breach is."""

    LEAK = auto()
    INVARIANT = auto()


class Breach(Exception):
    """A rule that does not hold in some situation, said in one sentence."""

    def __init__(self, sentence: str, fault: Fault = Fault.INVARIANT) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.fault = fault


class Steps(Facts):
    """Steps every machine of the world by its rows. `taken` marks the rows by number."""

    def __init__(self, world: World, specs: Mapping[str, MachineSpec]) -> None:
        super().__init__(world, specs)
        binder = Binder(world, self.effect_rule, self.settle_rule)
        self.tables = {name: binder.bind(spec) for name, spec in specs.items()}
        self.row_texts = tuple(binder.texts)
        self.taken = bytearray(len(self.row_texts))
        self.machine_at = self.machines_by_place()

    def machines_by_place(self) -> dict[int, Table]:
        """For each place where an instance stands, its machine."""
        layout = self.layout
        machines = dict.fromkeys(layout.requests, self.tables["request"])
        machines |= dict.fromkeys((*layout.holds, *layout.flying), self.tables["hold"])
        machines[layout.write] = self.tables["write"]
        machines[layout.store] = self.tables["store"]
        return machines

    def effect_rule(self, machine: str, row: Row) -> Rule | None:
        """The rule that stands for the effect of `row`: `<machine>_<effect>`, or the longest beginning of that.

        `tell_oversize` tells: what an effect does beyond its first words is for the token ledger, which is not here.
        """
        words = row.effect.split("_") if row.effect else []
        for length in range(len(words), 0, -1):
            name = "_".join((machine, *words[:length]))
            rule: Rule | None = getattr(self, name, None)
            if rule is not None or name in NO_RULE_NEEDED:
                return rule
        if not words:
            return None
        raise ValueError(
            f"{machine} row on {row.event!r} has the effect {row.effect!r}, which the explorer has no rule for:"
            f" write Effects.{machine}_{row.effect} in stagehold/machines/explorer/effects.py"
        )

    def settle_rule(self, machine: str, kind: Kind, target: int) -> Rule | None:
        """What follows a step into a state of `kind`: an ended instance leaves, a flying hold makes room."""
        if kind is Kind.TERMINAL:
            ends: dict[str, Rule] = {
                "request": self.end_request, "hold": self.end_hold, "write": self.end_write, "store": self.end_store,
            }  # fmt: skip
            return ends[machine]
        if machine == "hold" and kind is Kind.FLYING:
            return self.fly
        if machine == "request" and target in FORGETFUL:
            return self.forget
        return None

    def step(self, board: Board, place: int, event: str, outcome: IntEnum | None = None) -> None:
        """Send `event` to the instance at `place`; its effect, and all that follows from it, run to the end."""
        row = self.machine_at[place].rows.get((board[place], event, outcome))
        if row is None:
            raise Breach(self.no_row(board, place, event, outcome))
        self.taken[row.number] = 1
        owned = board[place + OWNS]
        kept = owned & ~row.releases
        if row.releases & ~owned or row.takes & kept:
            raise Breach(f"{row.text} releases what is not owned, or takes what is")
        board[place] = row.target
        board[place + OWNS] = kept | row.takes
        if (row.releases | row.takes) & BUFFERS:
            self.move_buffers(board, place, row)
        if row.counter is not None:
            self.count(board, place, row)
        if row.effect is not None:
            row.effect(board, place, row)
        if row.settle is not None:
            row.settle(board, place, row)

    def no_row(self, board: Board, place: int, event: str, outcome: IntEnum | None) -> str:
        """The sentence for an event that finds no row."""
        table = self.machine_at[place]
        names = {**table.state_names, EMPTY: "no instance", UNBORN: "unborn"}
        answer = f" {outcome.name}" if outcome is not None else ""
        return f"{table.name}: {event!r}{answer} has no row in {names[board[place]]}"

    def move_buffers(self, board: Board, place: int, row: RowFacts) -> None:
        """Staging and pins go back to their pools; an io ticket that is taken begins an IO."""
        if row.releases & STAGING:
            if board[place + at.BUSY]:
                raise Breach(f"{row.text}: staging freed while its IO still writes")
            board[place + at.UNITS] = 0
        if row.releases & PIN:
            board[place + at.PINNED] = 0
        if row.takes & IO:
            board[place + at.BUSY] = 1

    def count(self, board: Board, place: int, row: RowFacts) -> None:
        """Moves the row's counter by one; it must keep its limit."""
        assert row.counter is not None, "only rows that count come here"
        board[place + row.counter] += 1
        if board[place + row.counter] > row.limit:
            raise Breach(f"{row.text} counts beyond its limit of {row.limit}")

    # What follows a step

    def must_own_nothing(self, board: Board, place: int, row: RowFacts) -> None:
        """An instance that has ended owns nothing."""
        if board[place + OWNS]:
            raise Breach(f"{row.text}: ended, and still owns something", Fault.LEAK)

    def end_request(self, board: Board, place: int, row: RowFacts) -> None:
        """A request leaves the board, or comes again as a new attempt."""
        self.must_own_nothing(board, place, row)
        attempts = board[place + at.ATTEMPTS]
        if row.target == RequestState.RETRACTED and attempts:
            self.arrive(board, place, attempts - 1)
            return
        board[place : place + at.REQUEST_WIDTH] = at.NO_REQUEST
        if self.requests_ended(board):
            self.forget_facts(board)

    def forget_facts(self, board: Board) -> None:
        """With no request left, nobody looks at trees, store content and host tier any more."""
        for tree in self.layout.trees:
            board[tree + at.HEIGHT], board[tree + at.TOMB] = self.floor, 0
        for span in self.layout.spans:
            board[span + at.CONTENT] = board[span + at.HOST] = 0

    def forget(self, board: Board, place: int, row: RowFacts) -> None:
        """Counters, clocks and knowledge of a request that will not use the store again."""
        del row
        for field in (at.ISSUES, at.DEFERS, at.WAIT, at.TIMER, at.KNOWN, at.PAID):
            board[place + field] = 0

    def fly(self, board: Board, place: int, row: RowFacts) -> None:
        """A hold that only its IO keeps makes room for the next hold of its span."""
        if place in self.layout.holds:
            span = board[place + at.SPAN] if row.target == LOADING else 0
            self.add_flying(board, row.target, board[place + OWNS], (board[place + at.UNITS], span))
            board[place : place + at.HOLD_WIDTH] = at.NO_HOLD

    def add_flying(self, board: Board, state: int, owns: int, units_and_span: tuple[int, int]) -> None:
        """A hold in flight, in the first free place; places are kept in order, since they have no identity."""
        units, span = units_and_span
        for place in self.layout.flying:
            if board[place] == EMPTY:
                board[place : place + at.HOLD_WIDTH] = [state, owns, 1, units, 0, 0, 0, span]
                break
        else:
            raise AssertionError("more holds fly than staging has units")
        self.sort_flying(board)

    def sort_flying(self, board: Board) -> None:
        """Equal sets of flying holds are the same situation."""
        width = at.HOLD_WIDTH
        records = sorted(board[place : place + width] for place in self.layout.flying)
        for place, record in zip(self.layout.flying, records, strict=True):
            board[place : place + width] = record

    def end_hold(self, board: Board, place: int, row: RowFacts) -> None:
        """A hold leaves the board."""
        self.must_own_nothing(board, place, row)
        board[place : place + at.HOLD_WIDTH] = at.NO_HOLD
        if place in self.layout.flying:
            self.sort_flying(board)

    def end_write(self, board: Board, place: int, row: RowFacts) -> None:
        """The write leaves the board."""
        self.must_own_nothing(board, place, row)
        board[place : place + at.WRITE_WIDTH] = at.NO_WRITE

    def end_store(self, board: Board, place: int, row: RowFacts) -> None:
        """The engine is gone, and its breaker with it."""
        self.must_own_nothing(board, place, row)
        board[place + STATE] = EMPTY
