"""What can be seen in a situation: the abstract counterparts of live tree, pools, store and breaker.

Pure reads, each one short rule of the world. Nothing here changes a board.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import EMPTY, OWNS, Board, Layout, Seen, lay_out
from stagehold.machines.explorer.tables import CLAIM, LOCK
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import HostMode, PrefetchPolicy
from stagehold.specs.request import RequestState
from stagehold.specs.store import StoreState
from stagehold.specs.worlds import ANCHOR, GONE, Breaker, World
from stagehold.specs.write import WriteState

# Plain integers: an attribute of an enum costs more than the comparison it is used in.
ANCHOR_LOCKED, COMMITTED = int(RequestState.ANCHOR_LOCKED), int(RequestState.COMMITTED)
PARKED, FETCHING = int(HoldState.PARKED), int(HoldState.FETCHING)
READY, PLANNED, LOADING = int(HoldState.READY), int(HoldState.PLANNED), int(HoldState.LOADING)
HEALTHY, OPEN, PROBING = int(StoreState.HEALTHY), int(StoreState.OPEN), int(StoreState.PROBING)
COPYING = int(WriteState.COPYING)


class Facts:
    """Reads of one world. `specs` are the machines by name."""

    def __init__(self, world: World, specs: Mapping[str, MachineSpec]) -> None:
        self.world = world
        self.specs = specs
        self.layout: Layout = lay_out(world)
        self.floor = ANCHOR if world.root else GONE
        self.ends = tuple(span.end for span in world.spans)
        self.tree_of = tuple(self.layout.trees[span.tree] for span in world.spans)
        self.span_of = dict(zip(self.layout.requests, world.wants, strict=True))
        self.cached = world.mode is HostMode.CACHE
        self.wait_at_birth = at.OUT if world.policy is PrefetchPolicy.BEST_EFFORT else at.UNARMED

    def beginnings(self) -> Iterator[bytes]:
        """The situations in which the world may begin: the store empty, and the store full."""
        for content in (0, 1):
            start: Board = [0] * self.layout.size
            for request in self.layout.requests:
                self.arrive(start, request, self.world.retractions)
            for place in (*self.layout.holds, *self.layout.flying):
                start[place : place + at.HOLD_WIDTH] = at.NO_HOLD
            start[self.layout.write] = at.UNBORN if self.world.writer else EMPTY
            start[self.layout.store] = OPEN if self.world.breaker is Breaker.OPEN else HEALTHY
            for tree in self.layout.trees:
                start[tree + at.HEIGHT] = ANCHOR
            for span in self.layout.spans:
                start[span + at.CONTENT] = content
            start[self.layout.attached] = 1
            yield bytes(start)

    def arrive(self, board: Board, request: int, attempts: int) -> None:
        """A new handle in its initial state, which may be sent back `attempts` times."""
        board[request : request + at.REQUEST_WIDTH] = at.NO_REQUEST
        board[request] = int(self.specs["request"].initial)
        board[request + at.WAIT] = self.wait_at_birth
        board[request + at.ATTEMPTS] = attempts

    # Requests

    def claims(self, seen: Seen, span: int) -> list[int]:
        """The requests that have a claim on the hold of `span`."""
        spans = self.span_of
        return [request for request in self.layout.requests if seen[request + OWNS] & CLAIM and spans[request] == span]

    def hold_of(self, request: int) -> int:
        """Where the hold of the span stands that `request` wants."""
        return self.layout.holds[self.span_of[request]]

    def visit_is_open(self, seen: Seen) -> bool:
        """Whether some visit waits for its commit or release."""
        return any(seen[request] == ANCHOR_LOCKED for request in self.layout.requests)

    def requests_ended(self, seen: Seen) -> bool:
        """Whether every request has ended."""
        return all(seen[request] == EMPTY for request in self.layout.requests)

    # The live tree

    def height(self, seen: Seen, request: int) -> int:
        """How far the live tree reaches on the path of `request`."""
        return seen[self.tree_of[self.span_of[request]]]

    def covered(self, seen: Seen, span: int) -> bool:
        """The joint match reaches the end of the span: all of FULL is live, and so is the window."""
        tree = self.tree_of[span]
        return seen[tree] >= self.ends[span] and not seen[tree + at.TOMB]

    def need(self, seen: Seen, span: int) -> int:
        """Units that a fetch of the span takes now: what the live tree lacks, at least the window."""
        return max(1, self.ends[span] - max(seen[self.tree_of[span]], ANCHOR))

    def anchor_height(self, seen: Seen, span: int) -> int:
        """The height to which a fetch that begins now is anchored."""
        return min(max(seen[self.tree_of[span]], ANCHOR), self.ends[span] - 1)

    def protected_height(self, seen: Seen, tree: int) -> int:
        """Below this height nothing of `tree` may be evicted: pins, locks and loads in flight."""
        lowest = self.floor
        for span, hold in enumerate(self.layout.holds):
            if self.tree_of[span] == tree and seen[hold] != EMPTY and seen[hold + at.PINNED]:
                lowest = max(lowest, seen[hold + at.START])
        for request in self.layout.requests:
            if seen[request + OWNS] & LOCK and self.tree_of[self.span_of[request]] == tree:
                lowest = max(lowest, self.locked_height(seen, request))
        return max(lowest, self.loading_height(seen, tree))

    def locked_height(self, seen: Seen, request: int) -> int:
        """What the lock of `request` keeps: in a visit the anchor of its hold, later at least the first anchor."""
        if seen[request] == ANCHOR_LOCKED and seen[self.hold_of(request)] != EMPTY:
            return seen[self.hold_of(request) + at.START]
        return ANCHOR

    def loading_height(self, seen: Seen, tree: int) -> int:
        """What loads in flight keep in place: the pages that their copies are being written to."""
        spans = [seen[place + at.SPAN] for place in self.layout.flying if seen[place] == LOADING]
        return max((self.ends[span] for span in spans if self.tree_of[span] == tree), default=GONE)

    # Pools

    def staging_used(self, seen: Seen) -> int:
        """Units of staging that holds and the write have."""
        layout = self.layout
        used = seen[layout.write + at.UNITS]
        for place in layout.holds:
            used += seen[place + at.UNITS]
        for place in layout.flying:
            used += seen[place + at.UNITS]
        return used

    def pins_used(self, seen: Seen) -> int:
        """Anchors that are pinned."""
        return sum([seen[place + at.PINNED] for place in self.layout.holds])

    def committed(self, seen: Seen) -> int:
        """Requests that the scheduler runs."""
        return sum([seen[request] == COMMITTED for request in self.layout.requests])

    def can_afford(self, seen: Seen) -> bool:
        """Whether one more request fits beside those that run and the pinned anchors."""
        return self.committed(seen) + self.pins_used(seen) < self.world.device

    def can_load(self, seen: Seen, hold: int) -> bool:
        """Whether one more request fits together with what `hold` brings, whose own pin ends with the load."""
        others = self.pins_used(seen) - seen[hold + at.PINNED]
        return self.committed(seen) + others + 2 <= self.world.device

    # The store and the host tier

    def store_rests(self, seen: Seen) -> bool:
        """Whether the breaker of the store in use says not to ask."""
        return bool(seen[self.layout.attached]) and seen[self.layout.store] in (OPEN, PROBING)

    def serves(self, seen: Seen) -> bool:
        """Whether anything beside the device takes pages and gives them: a store, or host memory as a tier."""
        return self.cached or bool(seen[self.layout.attached])

    def has_content(self, seen: Seen, span: int) -> bool:
        """Whether the store has the pages of the span and may be asked for them."""
        return bool(seen[self.layout.spans[span] + at.CONTENT] and seen[self.layout.attached])

    def hosted(self, seen: Seen, span: int) -> bool:
        """Whether the host tier has the pages of the span."""
        return bool(seen[self.layout.spans[span] + at.HOST])

    def joinable(self, seen: Seen, span: int) -> bool:
        """Whether the span has a hold whose bytes are there or on their way."""
        return seen[self.layout.holds[span]] in (FETCHING, READY)

    def head_busy(self, seen: Seen, span: int) -> bool:
        """Whether a shorter span over the same head has a live hold: the longer one waits for it."""
        return any(
            self.tree_of[other] == self.tree_of[span] and end < self.ends[span] and seen[hold] != EMPTY
            for other, (hold, end) in enumerate(zip(self.layout.holds, self.ends, strict=True))
        )
