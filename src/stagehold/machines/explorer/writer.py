"""What may happen to the one write of a world: its offer, its copy, its puts, its limits."""

from __future__ import annotations

from collections.abc import Iterator

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer import moves
from stagehold.machines.explorer.board import EMPTY, UNBORN, Board
from stagehold.machines.explorer.ticks import Ticks
from stagehold.specs.outcomes import Copied, Offer, PutEnded, Start
from stagehold.specs.write import WriteState

OFFERED, QUEUED = int(WriteState.OFFERED), int(WriteState.QUEUED)
COPYING, STORING = int(WriteState.COPYING), int(WriteState.STORING)


class Writer(Ticks):
    """The moves of the write."""

    def writes(self) -> None:
        """All that may happen to the write now, save its clocks."""
        write = self.layout.write
        state = self.now[write]
        if state == EMPTY:
            return
        if state == UNBORN:
            self.offers(write)
        elif state == QUEUED:
            self.starts(write)
        elif state == COPYING:
            alone = Copied.KEPT if self.cached else Copied.UNWANTED
            wanted = Copied.WANTED if self.now[self.layout.attached] else alone
            self.play(moves.COPIED, 0, wanted, self.end_write_io, write, "copied", wanted)
        elif state == STORING:
            for ended in self.puts(write):
                self.play(moves.PUT_ENDED, 0, ended, self.end_write_io, write, "put_ended", ended)
        else:
            self.play(moves.WRITE_IO_ENDS, 0, None, self.end_write_io, write, "io_ended", None)

    def write_clocks(self) -> None:
        """The limit of the wait and that of the put."""
        write, deadlines = self.layout.write, self.tables["write"].deadlines
        state = self.now[write]
        if state == QUEUED and QUEUED in deadlines:
            self.fire(moves.WRITE_OUT, 0, write, deadlines[QUEUED])
        elif state == STORING and STORING in deadlines:
            self.fire(moves.PUT_OUT, 0, write, deadlines[STORING])

    def offers(self, write: int) -> None:
        """An intent may be refused for any reason; who owns nothing and is refused leaves at once."""
        if self.over:
            return
        for offer in Offer:
            if (offer is Offer.OFF) != self.serves(self.now):
                self.play(moves.OFFER, 0, offer, self.offer, write, offer)

    def offer(self, board: Board, write: int, offer: Offer) -> None:
        """Born and answered in one cascade."""
        board[write : write + at.WRITE_WIDTH] = at.NO_WRITE
        board[write] = OFFERED
        self.step(board, write, "offer", offer)

    def starts(self, write: int) -> None:
        """A queued write begins when staging has room and the store is asked at all; its node may be gone."""
        self.attempt(moves.START_WRITE, 0, write, "start", Start.GONE)
        if self.store_rests(self.now) or self.staging_used(self.now) >= self.world.staging:
            self.repeat(moves.START_WRITE, 0, write, "start", Start.BLOCKED)
        else:
            self.attempt(moves.START_WRITE, 0, write, "start", Start.COPY)
        hosted = any(self.hosted(self.now, span) for span in range(len(self.layout.spans)))
        if self.cached and self.now[self.layout.attached] and hosted:
            self.attempt(moves.START_WRITE, 0, write, "start", Start.HOSTED)

    def puts(self, write: int) -> Iterator[PutEnded]:
        """A put succeeds or fails; a failed one is tried again while tries are left."""
        yield PutEnded.STORED
        left = self.now[write + at.TRIES] < self.world.tries
        yield PutEnded.FAILED if left else PutEnded.SPENT

    def end_write_io(self, board: Board, write: int, event: str, outcome: Copied | PutEnded | None) -> None:
        """The IO is over; the write hears of it."""
        board[write + at.BUSY] = 0
        self.step(board, write, event, outcome)
