"""How requests join and leave holds, and who is woken: the cascades that several effects share.

Cascades run to the end inside the step that began them: a hold that ends tells its claimants, a claimant that
leaves last drops the hold.
"""

from __future__ import annotations

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import EMPTY, Board
from stagehold.machines.explorer.facts import ANCHOR_LOCKED, PLANNED
from stagehold.machines.explorer.steps import Steps
from stagehold.specs.outcomes import Evaluate, HoldEnd
from stagehold.specs.request import RequestState
from stagehold.specs.worlds import ANCHOR

STAGED, RETRY = int(RequestState.STAGED), int(RequestState.RETRY)


class Claims(Steps):
    """Joining, leaving, telling, arming and waking."""

    # Claims: how requests join and leave holds

    def join(self, board: Board, request: int) -> None:
        """The request's claim is one on the live hold of its span, or on a new one."""
        hold = self.hold_of(request)
        if board[hold] == EMPTY:
            board[hold : hold + at.HOLD_WIDTH] = at.NO_HOLD
            board[hold] = int(self.specs["hold"].initial)
            board[hold + at.START] = ANCHOR
            board[hold + at.SPAN] = self.span_of[request]

    def leave(self, board: Board, request: int) -> None:
        """A claim is gone: the last one drops the hold, and a visitor that leaves gives the plan back."""
        hold = self.hold_of(request)
        claimants = self.claims(board, self.span_of[request])
        if not claimants:
            self.step(board, hold, "drop")
        elif board[hold] == PLANNED and all(board[other] != ANCHOR_LOCKED for other in claimants):
            self.step(board, hold, "unplan")

    def tell(self, board: Board, span: int, end: HoldEnd) -> None:
        """Every claimant of the span's hold hears how it ended."""
        for request in self.claims(board, span):
            self.step(board, request, "hold_ended", end)

    def share(self, board: Board, request: int, seen: Evaluate) -> None:
        """What one claimant saw, the other ones that wait see in the same cascade."""
        for other in self.claims(board, self.span_of[request]):
            if board[other] == STAGED:
                self.step(board, other, "evaluate", seen)

    # Retries: who arms, and who wakes

    def arm(self, board: Board, request: int) -> None:
        """A paced retry gets its timer, unless the interval is zero or the breaker rests."""
        armed = self.world.paced and not self.store_rests(board)
        board[request + at.TIMER] = at.ARMED if armed else 0

    def arm_if_retry(self, board: Board, request: int) -> None:
        """Arms a request that its row has sent to `retry`, and no other."""
        if board[request] == RETRY:
            self.arm(board, request)

    def wake(self, board: Board) -> None:
        """A stored write sends every retry that waits, save in an outage: recovery will."""
        if not self.store_rests(board):
            self.send_due(board, (0, at.ARMED))

    def send_due(self, board: Board, timers: tuple[int, ...]) -> None:
        """Every request in `retry` whose timer is one of `timers` falls due at once."""
        for request in self.layout.requests:
            if board[request] == RETRY and board[request + at.TIMER] in timers:
                board[request + at.TIMER] = at.AT_ONCE
