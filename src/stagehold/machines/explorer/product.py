"""The whole abstract world: all its moves, and what must hold in every situation.

`Product` is what the search drives. To see that the search sees, a test takes a rule of the world away by deriving
from it. What a step alone can show (counters and their limits, staging under IO, unverified pages) is checked in
`steps` and `effects`. Ranks, late completions and sizes are not in this world: it has one replica, and a query or
an IO whose owner is gone tells nobody.
"""

from __future__ import annotations

from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import EMPTY, OWNS, UNBORN, Seen
from stagehold.machines.explorer.facts import ANCHOR_LOCKED, PLANNED
from stagehold.machines.explorer.moves import ADMIT
from stagehold.machines.explorer.steps import Breach
from stagehold.machines.explorer.tables import IO
from stagehold.machines.explorer.traffic import Traffic
from stagehold.machines.explorer.visits import CAPPED, LOOKUP, QUEUED, RETRY, STAGED, Visits
from stagehold.machines.explorer.writer import Writer

ADMITTED_WHEN_AFFORDED = frozenset((QUEUED, RETRY, CAPPED))


class Product(Visits, Writer, Traffic):
    """Every move of one world, and its invariants."""

    def moves(self, situation: bytes) -> list[tuple[int, bytes]]:
        """What may follow: (label, situation). `armed` and `found` tell which clocks run and what went wrong."""
        self.begin(situation)
        self.scheduler()
        self.clocks()
        self.write_clocks()
        if not self.visiting:
            self.facts()
            self.writes()
        self.others()
        return self.out

    def ended(self, seen: Seen) -> bool:
        """The end of the world: no request, no hold and no write is left."""
        layout = self.layout
        return (
            self.requests_ended(seen)
            and seen[layout.write] in (EMPTY, UNBORN)
            and all(seen[place] == EMPTY for place in (*layout.holds, *layout.flying))
        )

    def waits(self, seen: Seen) -> bool:
        """Whether something is left that must end although no IO and no outage ever does."""
        write_waits = seen[self.layout.write] in self.tables["write"].waiting
        return write_waits or not self.requests_ended(seen)

    # What must hold

    def check(self, seen: Seen) -> None:
        """Raises the first breach of the invariants in a situation."""
        self.check_instances(seen)
        for span, hold in enumerate(self.layout.holds):
            self.check_hold(seen, span, hold)
        if self.staging_used(seen) > self.world.staging:
            raise Breach("more staging in use than there is")
        if self.pins_used(seen) > self.world.pins:
            raise Breach("more anchors pinned than the cap allows")
        if not self.committed(seen) and not self.can_afford(seen):
            raise Breach("nothing runs, and yet a request cannot be afforded")
        for request in self.layout.requests:
            if seen[request] == RETRY and not seen[request + at.TIMER]:
                self.check_resting_retry(seen)
        if self.requests_ended(seen) and any(seen[hold] != EMPTY for hold in self.layout.holds):
            raise Breach("a hold that its IO does not keep outlives all requests")

    def check_instances(self, seen: Seen) -> None:
        """Each instance owns what its state says, none is seen in passing, and tickets follow the IO."""
        for place, table in self.machine_at.items():
            state = seen[place]
            if state >= UNBORN:
                continue
            if seen[place + OWNS] != table.owns[state]:
                raise Breach(f"{table.name}: {table.state_names[state]} does not own what its table says")
            if state in table.passing:
                raise Breach(f"{table.name}: {table.state_names[state]} is a passing state, and was seen")
            if table.name in ("hold", "write") and bool(seen[place + OWNS] & IO) != bool(seen[place + at.BUSY]):
                raise Breach(f"{table.name}: the io ticket and the IO of {table.state_names[state]} differ")

    def check_hold(self, seen: Seen, span: int, hold: int) -> None:
        """A live hold has claims, a claim has a live hold, and a plan has its visitor."""
        claimants = self.claims(seen, span)
        if bool(claimants) != (seen[hold] != EMPTY):
            raise Breach("a live hold without a claim, or a claim without a live hold")
        visitors = sum(seen[request] == ANCHOR_LOCKED for request in claimants)
        if visitors != (seen[hold] == PLANNED):
            raise Breach("a planned hold without its one visit, or a visit without a planned hold")
        if seen[hold] != EMPTY and seen[hold + at.PINNED] and seen[self.tree_of[span]] < seen[hold + at.START]:
            raise Breach("a pinned anchor that is not in the live tree")

    def check_resting_retry(self, seen: Seen) -> None:
        """A retry without a timer needs a reason: an outage, or an interval of zero."""
        if self.world.paced and not self.store_rests(seen):
            raise Breach("a retry without a timer while the store answers")

    def check_visits(self) -> None:
        """After the moves of a situation: what the visits of the scheduler must not refuse."""
        visited = {self.labels.who(label): label for label, _ in self.out if self.labels.is_visit(label)}
        affords = self.can_afford(self.now)
        for who, request in enumerate(self.layout.requests):
            label = visited.get(who)
            admitted = label is not None and self.labels.is_a(ADMIT, label)
            if affords and self.is_free(request) and not admitted:
                raise Breach("a request that can be afforded is not admitted by its visit")
            if label is None and self.has_waited(request, affords):
                raise Breach("a visit is skipped although the wait clock has run out")

    def is_free(self, request: int) -> bool:
        """Whether nothing but room stands between `request` and its admission; what is due at once comes first."""
        return self.now[request] in ADMITTED_WHEN_AFFORDED and self.now[request + at.TIMER] != at.AT_ONCE

    def has_waited(self, request: int, affords: bool) -> bool:
        """Whether a visit must lead somewhere: the wait clock has run out, and no sibling's visit is open."""
        now = self.now
        if now[request + at.WAIT] != at.OUT:
            return False
        if now[request] == STAGED:
            return now[self.hold_of(request)] != PLANNED
        return now[request] == LOOKUP and affords
