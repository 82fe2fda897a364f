"""What the scheduler may do: visit, commit, release, finish, retract; and what the caller may: abort.

A visit stays open between plan and commit. Meanwhile other requests may be visited, end or be aborted, and the
tree may change, but no tick passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer import moves
from stagehold.machines.explorer.board import EMPTY, Board
from stagehold.machines.explorer.facts import ANCHOR_LOCKED, COMMITTED, FETCHING, PLANNED, READY
from stagehold.machines.explorer.play import Play
from stagehold.specs.outcomes import Commit, Cut, Evaluate, StillCovered
from stagehold.specs.request import RequestState

QUEUED, LOOKUP, STAGED = int(RequestState.QUEUED), int(RequestState.LOOKUP), int(RequestState.STAGED)
COVERED, RETRY, CAPPED = int(RequestState.COVERED), int(RequestState.RETRY), int(RequestState.CAPPED)


class Visits(Play):
    """The moves of scheduler and caller for each request."""

    def scheduler(self) -> None:
        """All that scheduler and caller may do now."""
        for who, request in enumerate(self.layout.requests):
            state = self.now[request]
            if state == EMPTY:
                continue
            if state == ANCHOR_LOCKED:
                self.close_visit(who, request)
            elif state == COMMITTED:
                self.attempt(moves.FINISH, who, request, "finish")
                self.attempt(moves.RETRACT, who, request, "retract")
            else:
                self.visit(who, request)
            self.attempt(moves.ABORT, who, request, "abort")

    def visit(self, who: int, request: int) -> None:
        """One look of the scheduler at one request."""
        state = self.now[request]
        if state == STAGED:
            self.visit_staged(who, request)
        elif state == LOOKUP:
            self.visit_lookup(who, request)
        elif state == COVERED:
            self.visit_covered(who, request)
        elif self.may_admit(request) and self.can_afford(self.now):
            self.attempt(moves.ADMIT, who, request, "admit")

    def may_admit(self, request: int) -> bool:
        """Whether `queued`, `retry` and `capped` are admitted: always, save a retry that falls due before that."""
        return self.now[request + at.TIMER] != at.AT_ONCE

    def visit_lookup(self, who: int, request: int) -> None:
        """Skipped until the wait clock has run out, then admitted with what the device holds."""
        if self.now[request + at.WAIT] != at.OUT:
            self.skip(who, request)
        elif self.can_afford(self.now):
            self.attempt(moves.ADMIT, who, request, "admit")

    def visit_covered(self, who: int, request: int) -> None:
        """Admitted while the tree still covers the span, or when no launch is left."""
        spent = self.now[request + at.ISSUES] >= self.world.issue_limit
        if not (spent or self.covered(self.now, self.span_of[request])):
            self.attempt(moves.SHRINK, who, request, "admit", StillCovered.SHRUNK)
        elif self.can_afford(self.now):
            self.attempt(moves.ADMIT, who, request, "admit", StillCovered.COMMIT)

    def visit_staged(self, who: int, request: int) -> None:
        """Looks at the live tree first, then at the hold, then at the wait clock."""
        now, hold = self.now, self.hold_of(request)
        if now[hold] == PLANNED:
            return  # a sibling's visit ends in this pass
        if self.height(now, request) < self.anchor_of(hold):
            self.attempt(moves.VISIT, who, request, "evaluate", Evaluate.LOST)
        elif self.covered(now, self.span_of[request]):
            self.attempt(moves.VISIT, who, request, "evaluate", Evaluate.COVERED)
        elif now[hold] == READY:
            self.attempt(moves.PLAN, who, request, "evaluate", Evaluate.LOCKED)
        elif now[request + at.WAIT] != at.OUT:
            self.skip(who, request)
        else:
            self.visit_unwaited(who, request)

    def anchor_of(self, hold: int) -> int:
        """Below this height the hold's anchor is lost; a span that starts at the root has none."""
        return 0 if self.world.root else self.now[hold + at.START]

    def visit_unwaited(self, who: int, request: int) -> None:
        """A visit that will not wait cuts first: a usable head is better than nothing."""
        self.attempt(moves.VISIT, who, request, "evaluate", Evaluate.UNWAITED)
        hold = self.hold_of(request)
        if self.now[hold] == FETCHING and self.now[hold + at.UNITS] > 1:
            self.play(moves.PLAN, who, Evaluate.LOCKED, self.cut_and_plan, request)

    def cut_and_plan(self, board: Board, request: int) -> None:
        """The verified head is kept, and the visit goes on with a ready hold."""
        self.step(board, self.hold_of(request), "cut", Cut.USABLE)
        self.step(board, request, "evaluate", Evaluate.LOCKED)

    def skip(self, who: int, request: int) -> None:
        """The first visit that is skipped because of the store starts the wait clock; later ones change nothing."""
        if self.now[request + at.WAIT] == at.UNARMED:
            self.play(moves.SKIP, who, None, self.start_waiting, request)

    def start_waiting(self, board: Board, request: int) -> None:
        """The wait clock runs, over refetches as well, until the attempt ends."""
        board[request + at.WAIT] = at.RUNNING

    def close_visit(self, who: int, request: int) -> None:
        """An open visit ends with a commit or is given back."""
        for outcome in self.commit_outcomes(request):
            self.attempt(moves.COMMIT, who, request, "commit", outcome)
        self.attempt(moves.RELEASE, who, request, "release")

    def commit_outcomes(self, request: int) -> Iterator[Commit]:
        """What was delivered is the world's choice; whether it fits follows from the pool."""
        hold = self.hold_of(request)
        if self.can_load(self.now, hold):
            yield Commit.DELIVERED
            yield Commit.MORE
        elif self.committed(self.now):
            yield Commit.NO_ROOM
        if not self.committed(self.now):
            yield self.deferred(request)
        yield Commit.NOTHING if self.can_afford(self.now) else Commit.UNFIT
        yield Commit.PARTIAL

    def deferred(self, request: int) -> Commit:
        """No room although idle (some window pool may be short): bounded by the deferral cap."""
        left = self.now[request + at.DEFERS] < self.world.defer_limit
        return Commit.DEFERRED if left else Commit.DEFER_CAP
