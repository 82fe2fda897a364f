"""What a tick may bring: clocks that run out, launches, and facts about queries, fetches and copies.

No tick passes while a visit is open. Every deadline may fire at any tick at which its clock runs, and every IO may
end at any tick, or never.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer import moves
from stagehold.machines.explorer.board import EMPTY, Board
from stagehold.machines.explorer.facts import FETCHING, LOADING, PARKED, PLANNED, READY
from stagehold.machines.explorer.play import Play
from stagehold.machines.explorer.steps import Breach
from stagehold.specs.outcomes import Answer, Cut, Fetched, IoCommit, Launch
from stagehold.specs.request import RequestState
from stagehold.specs.worlds import ANCHOR

QUEUED, LOOKUP, RETRY = int(RequestState.QUEUED), int(RequestState.LOOKUP), int(RequestState.RETRY)
SELF_LOOPS = frozenset((IoCommit.PIN_FULL, IoCommit.NO_STAGING, IoCommit.HEAD_BUSY))
"""Answers that leave a hold parked: its park clock bounds them."""


class Ticks(Play):
    """The moves of the tick for requests and holds."""

    def clocks(self) -> None:
        """Every clock that runs for a request or a hold."""
        for who, request in enumerate(self.layout.requests):
            self.request_clocks(who, request)
        for span, hold in enumerate(self.layout.holds):
            self.hold_clock(span, hold)

    def request_clocks(self, who: int, request: int) -> None:
        """The wait clock, the limit of a lookup, and an armed retry."""
        now, deadlines = self.now, self.tables["request"].deadlines
        state = now[request]
        if now[request + at.WAIT] == at.RUNNING:
            self.armed |= self.bit(moves.Clock.WAIT, who)
            if not self.visiting:
                self.play(moves.WAIT_OUT, who, None, self.wait_out, request)
        if state == LOOKUP and LOOKUP in deadlines:
            self.fire(moves.LATE, who, request, deadlines[LOOKUP])
        elif state == RETRY and RETRY in deadlines and now[request + at.TIMER]:
            self.due(who, request, deadlines[RETRY])

    def due(self, who: int, request: int, event: str) -> None:
        """An armed retry falls due at some tick, and so does one that was sent."""
        self.armed |= self.bit(moves.Clock.DUE, who)
        if not self.visiting:
            for launch in self.launches(request):
                self.play(moves.DUE, who, launch, self.launch, request, event, launch)

    def launch(self, board: Board, request: int, event: str, outcome: Launch) -> None:
        """One launch; an outage may cost a request one of them."""
        if outcome is Launch.STORE_OPEN:
            if board[request + at.PAID]:
                raise Breach("a second launch spent in one outage")
            board[request + at.PAID] = 1
        self.step(board, request, event, outcome)

    def wait_out(self, board: Board, request: int) -> None:
        """From now on, no visit to this attempt is skipped because of the store."""
        board[request + at.WAIT] = at.OUT

    def hold_clock(self, span: int, hold: int) -> None:
        """One clock for each of parked, fetching and ready; that of ready runs on in a visit."""
        state, deadlines = self.now[hold], self.tables["hold"].deadlines
        if state == PLANNED and READY in deadlines:
            self.armed |= self.bit(moves.Clock.READY, span)
        elif state == PARKED and PARKED in deadlines:
            self.fire(moves.PARKED_OUT, span, hold, deadlines[PARKED])
        elif state == FETCHING and FETCHING in deadlines:
            self.fire(moves.FETCHED_OUT, span, hold, deadlines[FETCHING], self.cuts(hold))
        elif state == READY and READY in deadlines:
            self.fire(moves.READY_OUT, span, hold, deadlines[READY])

    def cuts(self, hold: int) -> Iterator[Cut]:
        """A cut may come before the first verified page; a fetch of one unit has no head to keep."""
        yield Cut.HOPELESS
        if self.now[hold + at.UNITS] > 1:
            yield Cut.USABLE

    def facts(self) -> None:
        """Launches, answers, IO commits and ends of IO: each may come at this tick."""
        for who, request in enumerate(self.layout.requests):
            self.request_facts(who, request)
        for span, hold in enumerate(self.layout.holds):
            self.hold_facts(span, hold)
        for who, hold in enumerate(self.layout.flying):
            if self.now[hold] != EMPTY:
                event = "loaded" if self.now[hold] == LOADING else "io_ended"
                self.play(moves.IO_ENDS, who, None, self.end_io, hold, event)

    def request_facts(self, who: int, request: int) -> None:
        """The first launch of a request, and the answer to its query."""
        if self.now[request] == QUEUED:
            for launch in self.launches(request):
                self.play(moves.ISSUE, who, launch, self.launch, request, "issue", launch)
        elif self.now[request] == LOOKUP:
            for answer in self.answers(request):
                self.attempt(moves.ANSWER, who, request, "answer", answer)

    def launches(self, request: int) -> Iterator[Launch]:
        """The order in which a launch asks; only the last look leaves the world a choice."""
        now, span = self.now, self.span_of[request]
        spent = now[request] == RETRY and now[request + at.ISSUES] >= self.world.issue_limit
        rests = self.store_rests(now)
        if spent or not self.serves(now):
            yield Launch.CAP
        elif self.covered(now, span):
            yield Launch.TOO_SHORT
        elif self.hosted(now, span):
            yield Launch.KNOWN
        elif not now[self.layout.attached]:
            yield Launch.CAP
        elif rests and not self.joinable(now, span):
            yield Launch.STORE_OPEN
        elif now[request + at.KNOWN] or rests:
            yield Launch.KNOWN
        else:
            yield from self.asks()

    def asks(self) -> Iterator[Launch]:
        """A query, unless rate or load limits decline it."""
        if self.world.declines:
            yield Launch.DECLINED
        yield Launch.LOOKUP

    def answers(self, request: int) -> Iterator[Answer]:
        """What the store says of the span."""
        if self.has_content(self.now, self.span_of[request]):
            yield Answer.HIT
            yield Answer.BELOW_THRESHOLD
        else:
            yield Answer.MISS

    def hold_facts(self, span: int, hold: int) -> None:
        """The IO commit of a parked hold, and the end of a fetch."""
        if self.now[hold] == PARKED:
            for outcome in self.io_commits(span):
                if outcome in SELF_LOOPS:
                    self.repeat(moves.IO_COMMIT, span, hold, "io_commit", outcome)
                else:
                    self.attempt(moves.IO_COMMIT, span, hold, "io_commit", outcome)
        elif self.now[hold] == FETCHING:
            for fetched in self.deliveries(span, hold):
                self.play(moves.FETCHED, span, fetched, self.end_io, hold, "fetched", fetched)

    def end_io(self, board: Board, place: int, event: str, outcome: Fetched | None = None) -> None:
        """The IO is over; the instance hears of it."""
        board[place + at.BUSY] = 0
        self.step(board, place, event, outcome)

    def deliveries(self, span: int, hold: int) -> Iterator[Fetched]:
        """Whole, a head, or nothing; pages that have vanished cannot come whole."""
        if self.has_content(self.now, span):
            yield Fetched.WHOLE
        if self.now[hold + at.UNITS] > 1:
            yield Fetched.HEAD
        yield Fetched.NOTHING

    def io_commits(self, span: int) -> Iterator[IoCommit]:
        """The one look before a fetch: the live tree first, then what is needed, all of it or nothing."""
        now = self.now
        pinless = self.world.root or self.pins_used(now) < self.world.pins
        if not self.world.root and now[self.tree_of[span]] < ANCHOR:
            yield IoCommit.LOST
        elif self.covered(now, span):
            yield IoCommit.COVERED
        elif self.head_busy(now, span):
            yield IoCommit.HEAD_BUSY
        elif self.hosted(now, span):
            yield IoCommit.LOCAL if pinless else IoCommit.PIN_FULL
        elif self.store_rests(now) or not now[self.layout.attached]:
            yield IoCommit.STORE_OPEN
        elif self.need(now, span) > self.world.staging:
            yield IoCommit.OVERSIZE
        elif self.staging_used(now) + self.need(now, span) > self.world.staging:
            yield IoCommit.NO_STAGING
        else:
            yield from self.pinnings(pinless)

    def pinnings(self, pinless: bool) -> Iterator[IoCommit]:
        """How a fetch is anchored; `pinless` says that no pin is missing."""
        if self.world.root:
            yield IoCommit.NO_ANCHOR
            return
        yield IoCommit.PINNED if pinless else IoCommit.PIN_FULL
        if self.world.large_anchor:
            yield IoCommit.TOO_LARGE_TO_PIN
