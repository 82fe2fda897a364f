"""What the named effects of *hold*, *write* and *store* mean in the abstract world, as in `request_effects`."""

from __future__ import annotations

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import Board
from stagehold.machines.explorer.request_effects import RequestEffects
from stagehold.machines.explorer.steps import Breach
from stagehold.machines.explorer.tables import RowFacts
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import HoldEnd, IoCommit

DRAINING = int(HoldState.DRAINING)
END_OF = {int(HoldState[end.name]): end for end in HoldEnd}
"""What a hold that ended in a state tells its claimants."""


class Effects(RequestEffects):
    """Each effect takes the board, the place of the instance, and the row that was taken."""

    def hold_fetch(self, board: Board, hold: int, row: RowFacts) -> None:
        """Staging for what the live tree lacks now; the anchor is where the live tree ends."""
        span = board[hold + at.SPAN]
        board[hold + at.UNITS] = self.need(board, span)
        board[hold + at.START] = self.anchor_height(board, span)
        board[hold + at.PINNED] = int(row.outcome is IoCommit.PINNED)

    def hold_take_local(self, board: Board, hold: int, row: RowFacts) -> None:
        """References to pages of the host tier: no unit of staging beyond theirs, and no IO."""
        del row
        board[hold + at.VERIFIED] = 1
        board[hold + at.START] = self.anchor_height(board, board[hold + at.SPAN])
        board[hold + at.PINNED] = int(not self.world.root and self.world.pins > 0)

    def hold_verified(self, board: Board, hold: int, row: RowFacts) -> None:
        """Every page is what it should be."""
        del row
        board[hold + at.VERIFIED] = 1

    def hold_keep_head(self, board: Board, hold: int, row: RowFacts) -> None:
        """The head is verified; the rest of the staging goes back."""
        del row
        board[hold + at.VERIFIED] = 1
        board[hold + at.UNITS] = 1

    def hold_cut_tail(self, board: Board, hold: int, row: RowFacts) -> None:
        """The head is kept; the tail and the IO that still writes it go to a hold born draining."""
        del row
        assert HoldState.DRAINING in self.specs["hold"].births, "the tail of a cut fetch is born draining"
        tail = board[hold + at.UNITS] - 1
        board[hold + at.VERIFIED] = 1
        board[hold + at.UNITS] = 1
        board[hold + at.BUSY] = 0
        self.add_flying(board, DRAINING, self.tables["hold"].owns[DRAINING], (tail, 0))

    def hold_abandon(self, board: Board, hold: int, row: RowFacts) -> None:
        """The IO keeps the buffer; the claimants hear why now."""
        end = HoldEnd.EXPIRED if row.event == "cut" else HoldEnd.DROPPED
        self.tell(board, board[hold + at.SPAN], end)

    def hold_tell(self, board: Board, hold: int, row: RowFacts) -> None:
        """The claimants hear how the hold ended."""
        self.tell(board, board[hold + at.SPAN], END_OF[row.target])

    def hold_fail(self, board: Board, hold: int, row: RowFacts) -> None:
        """As `tell`."""
        self.hold_tell(board, hold, row)

    def hold_free(self, board: Board, hold: int, row: RowFacts) -> None:
        """Verified pages that nobody spliced stay in the host tier where there is one."""
        if self.cached and board[hold + at.VERIFIED]:
            board[self.layout.spans[board[hold + at.SPAN]] + at.HOST] = 1
        self.hold_tell(board, hold, row)

    def hold_load(self, board: Board, hold: int, row: RowFacts) -> None:
        """Splicing is publishing: the tree reaches the end that is known now, windows are repaired."""
        span = board[hold + at.SPAN]
        if not board[hold + at.VERIFIED]:
            raise Breach(f"{row.text}: pages published that nothing has verified")
        tree = self.tree_of[span]
        board[tree] = max(board[tree], self.ends[span])
        board[tree + at.TOMB] = 0
        self.tell(board, span, HoldEnd.SPLICED)

    def write_copy(self, board: Board, write: int, row: RowFacts) -> None:
        """One unit of staging for the copy."""
        del row
        board[write + at.UNITS] = 1

    def write_stored(self, board: Board, write: int, row: RowFacts) -> None:
        """The store has the pages, and retries that wait for them fall due."""
        del write, row
        for span in self.layout.spans:
            board[span + at.CONTENT] = 1
        self.wake(board)

    def store_recover(self, board: Board, store: int, row: RowFacts) -> None:
        """The outage is over: every retry without a timer falls due."""
        del store, row
        for request in self.layout.requests:
            board[request + at.PAID] = 0
        self.send_due(board, (0,))
