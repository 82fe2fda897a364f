"""What others may do at any moment: other traffic in the tree, the store, its breaker, and the caller's decrees."""

from __future__ import annotations

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer import moves
from stagehold.machines.explorer.board import EMPTY, OWNS, Board
from stagehold.machines.explorer.facts import COMMITTED, COPYING, FETCHING, HEALTHY, LOADING, OPEN, PROBING
from stagehold.machines.explorer.play import Play
from stagehold.machines.explorer.tables import STAGING
from stagehold.specs.outcomes import Probed, Result
from stagehold.specs.store import StoreState
from stagehold.specs.worlds import WHOLE, Breaker

SUSPECT = int(StoreState.SUSPECT)


class Traffic(Play):
    """The moves of everybody else. None of them is sure to happen, and most may happen for ever."""

    def others(self) -> None:
        """All that others may do now; with no request left, nobody looks at trees and pages any more."""
        if not self.over:
            for who, tree in enumerate(self.layout.trees):
                self.tree_moves(who, tree)
            for span, place in enumerate(self.layout.spans):
                self.page_moves(span, place)
        if not self.visiting:
            self.breaker()
        if self.world.flush_detach and self.may_decree():
            self.decrees()

    # The live tree

    def tree_moves(self, who: int, tree: int) -> None:
        """Other traffic grows the tree, repairs its window, evicts it, and tombstones its window."""
        height, tomb = self.now[tree], self.now[tree + at.TOMB]
        if height < WHOLE or tomb:
            self.play(moves.GROW, who, None, self.grow, tree)
        if height > self.protected_height(self.now, tree):
            self.play(moves.EVICT, who, None, self.evict, tree)
        if self.world.tombstones and height == WHOLE and not tomb and not self.loading_height(self.now, tree):
            self.play(moves.ENTOMB, who, None, self.entomb, tree)

    def grow(self, board: Board, tree: int) -> None:
        """Half a fetch more is live; at its full height the window is repaired."""
        if board[tree] < WHOLE:
            board[tree] += 1
        else:
            board[tree + at.TOMB] = 0

    def evict(self, board: Board, tree: int) -> None:
        """Half a fetch less is live, from the leaf on; a window ends with the leaf."""
        board[tree] -= 1
        board[tree + at.TOMB] = 0

    def entomb(self, board: Board, tree: int) -> None:
        """The window at the end is gone, FULL lives on: pins and locks of FULL do not keep it."""
        board[tree + at.TOMB] = 1

    # Pages elsewhere

    def page_moves(self, span: int, place: int) -> None:
        """The store may lose the pages of a span; the host tier gets and loses them."""
        if self.now[place + at.CONTENT]:
            self.play(moves.VANISH, span, None, self.set_fact, place + at.CONTENT, 0)
        if self.cached and not self.now[place + at.HOST]:
            self.play(moves.DEMOTE, span, None, self.set_fact, place + at.HOST, 1)
        elif self.cached and not self.host_pages_used(span):
            self.play(moves.RECLAIM, span, None, self.set_fact, place + at.HOST, 0)

    def set_fact(self, board: Board, place: int, value: int) -> None:
        """One fact of the world changes."""
        board[place] = value

    def host_pages_used(self, span: int) -> bool:
        """Whether a hold or the write has references to the host tier's pages: staging, and no unit of its own."""
        now, layout = self.now, self.layout
        flying = [place for place in layout.flying if now[place + at.SPAN] == span]
        return any(
            now[place] != EMPTY and now[place + OWNS] & STAGING and not now[place + at.UNITS]
            for place in (layout.holds[span], *flying, layout.write)
        )

    # The breaker

    def breaker(self) -> None:
        """Results, rests and probes of the store; the engine closes it when all requests have ended."""
        store = self.layout.store
        if self.over:
            if self.now[store] != EMPTY and self.world.breaker is Breaker.LIVE:
                self.attempt(moves.SHUT, 0, store, "close")
        elif self.world.breaker is Breaker.LIVE:
            self.breaker_moves(store, self.now[store])

    def breaker_moves(self, store: int, state: int) -> None:
        """Any agreed result, at any tick; every limit of the breaker may fire, or not."""
        if state in (HEALTHY, SUSPECT):
            for result in Result:
                self.attempt(moves.BREAKER, 0, store, "result", result)
        if state == PROBING:
            for probed in Probed:
                self.attempt(moves.BREAKER, 0, store, "probed", probed)
        if state in self.tables["store"].deadlines and state in (SUSPECT, OPEN, PROBING):
            self.attempt(moves.BREAKER_OUT, 0, store, self.tables["store"].deadlines[state])

    # Decrees

    def decrees(self) -> None:
        """The caller flushes the tree or detaches the store, for good."""
        if self.may_flush():
            self.play(moves.FLUSH, 0, None, self.flush)
        if self.now[self.layout.attached]:
            self.play(moves.DETACH, 0, None, self.detach)

    def may_decree(self) -> bool:
        """An open visit refuses decrees, as it refuses a tick."""
        return not (self.visiting or self.over)

    def may_flush(self) -> bool:
        """Refused while a request runs, a hold loads or a write copies."""
        now, layout = self.now, self.layout
        loads = any(now[place] == LOADING for place in layout.flying)
        runs = any(now[request] == COMMITTED for request in layout.requests)
        return not (loads or runs or now[layout.write] == COPYING)

    def flush(self, board: Board) -> None:
        """Holds and queued writes are dropped, the tree and the host tier are emptied."""
        self.drop_all(board)
        for tree in self.layout.trees:
            board[tree + at.HEIGHT], board[tree + at.TOMB] = self.floor, 0
        for span in self.layout.spans:
            board[span + at.HOST] = 0

    def detach(self, board: Board) -> None:
        """What the store has a part in is dropped at once, and no retry waits for it any longer.

        Where host memory is a tier, holds that wait for nothing of the store stay.
        """
        board[self.layout.attached] = 0
        self.drop_holds(board, (FETCHING,) if self.cached else None)
        self.drop_write(board)
        self.send_due(board, (0, at.ARMED))

    def drop_all(self, board: Board) -> None:
        """A `drop` to every hold and write that can be told to stop; what flies stays to the end of its IO."""
        self.drop_holds(board)
        self.drop_write(board)

    def drop_holds(self, board: Board, states: tuple[int, ...] | None = None) -> None:
        """A `drop` to every live hold that is in one of `states`, or in any."""
        for hold in self.layout.holds:
            if board[hold] != EMPTY and (states is None or board[hold] in states):
                self.step(board, hold, "drop")

    def drop_write(self, board: Board) -> None:
        """A `drop` to the write, if it can be told to stop."""
        write = self.layout.write
        if (board[write], "drop", None) in self.tables["write"].rows:
            self.step(board, write, "drop")
