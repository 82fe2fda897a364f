"""What the named effects of *request* mean in the abstract world: one method per effect, `request_<effect>`.

An effect is called by the step of its row, after state, resources and counters have moved.
"""

from __future__ import annotations

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import Board
from stagehold.machines.explorer.claims import Claims
from stagehold.machines.explorer.tables import CLAIM, RowFacts
from stagehold.specs.outcomes import Evaluate, Resolve


class RequestEffects(Claims):
    """Each effect takes the board, the place of the request, and the row that was taken."""

    def request_ask(self, board: Board, request: int, row: RowFacts) -> None:
        """A query is on its way: nothing else is taken."""
        self.disarm(board, request)
        del row

    def disarm(self, board: Board, request: int) -> None:
        """A launch has ended the retry."""
        board[request + at.TIMER] = 0

    def request_claim(self, board: Board, request: int, row: RowFacts) -> None:
        """Opens or joins the hold of the span, whose end is known."""
        del row
        self.disarm(board, request)
        self.join(board, request)

    def request_claim_hit(self, board: Board, request: int, row: RowFacts) -> None:
        """As `claim`, and the end is known from now on."""
        board[request + at.KNOWN] = 1
        self.request_claim(board, request, row)

    def request_too_short(self, board: Board, request: int, row: RowFacts) -> None:
        """Nothing is missing."""
        del row
        self.disarm(board, request)

    def request_decline(self, board: Board, request: int, row: RowFacts) -> None:
        """Not asked: try again at the pace."""
        del row
        self.arm(board, request)

    def request_store_open(self, board: Board, request: int, row: RowFacts) -> None:
        """Not asked because of an outage: no timer, recovery will send it."""
        del row
        self.disarm(board, request)

    def request_miss(self, board: Board, request: int, row: RowFacts) -> None:
        """The end is not known; ask again at the pace."""
        del row
        board[request + at.KNOWN] = 0
        self.arm(board, request)

    def request_drop_query(self, board: Board, request: int, row: RowFacts) -> None:
        """A late answer finds no handle; ask again at the pace."""
        del row
        self.arm(board, request)

    def request_plan(self, board: Board, request: int, row: RowFacts) -> None:
        """The hold is planned for this request alone."""
        del row
        self.step(board, self.hold_of(request), "plan")

    def request_leave_lost(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves, looks for what is left of the budget, and shares the loss."""
        self.leave(board, request)
        self.request_claim_ended_lost(board, request, row)
        self.share(board, request, Evaluate.LOST)

    def request_leave_covered(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves, and shares what it saw."""
        del row
        self.leave(board, request)
        self.share(board, request, Evaluate.COVERED)

    def request_leave_unwaited(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves a hold that is not ready."""
        del row
        self.leave(board, request)

    def request_claim_ended(self, board: Board, request: int, row: RowFacts) -> None:
        """The hold has ended: nothing to leave."""
        del row
        self.arm_if_retry(board, request)

    def request_claim_ended_lost(self, board: Board, request: int, row: RowFacts) -> None:
        """The anchor is gone: one more launch at once, if one is left."""
        del row
        left = board[request + at.ISSUES] < self.world.issue_limit
        self.step(board, request, "resolve", Resolve.RETRY if left else Resolve.CAP)

    def request_claim_failed(self, board: Board, request: int, row: RowFacts) -> None:
        """The store did not keep its word: the end is forgotten."""
        del row
        board[request + at.KNOWN] = 0
        self.arm(board, request)

    def request_due_now(self, board: Board, request: int, row: RowFacts) -> None:
        """Due before the next admission."""
        del row
        board[request + at.TIMER] = at.AT_ONCE

    def request_splice(self, board: Board, request: int, row: RowFacts) -> None:
        """The hold is published and loads; other claimants hear SPLICED."""
        del row
        self.step(board, self.hold_of(request), "load")

    def request_admit_bare(self, board: Board, request: int, row: RowFacts) -> None:
        """Admitted with nothing from the hold, which stays for the others."""
        del row
        self.leave(board, request)

    def request_give_back(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves in the middle of its visit."""
        del row
        self.leave(board, request)
        self.arm_if_retry(board, request)

    def request_roll_back(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves after a broken promise."""
        del row
        self.leave(board, request)

    def request_unlock(self, board: Board, request: int, row: RowFacts) -> None:
        """The plan is given back, the claim stays."""
        del row
        self.step(board, self.hold_of(request), "unplan")

    def request_abort(self, board: Board, request: int, row: RowFacts) -> None:
        """Leaves whatever it had a claim on."""
        if row.releases & CLAIM:
            self.leave(board, request)
