"""The situation of a whole world as one flat list of small integers.

Owns the layout: which machine or fact stands where. It knows no rule. A situation that is kept is `bytes` (equal
situations are equal bytes); one that is being worked on is a list, so that a cascade can write into it. There are
no ticks, identifiers or growing counters in it: the count of situations is one of situations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stagehold.specs.outcomes import HostMode
from stagehold.specs.worlds import World

Board = list[int]
"""A situation being worked on."""
Seen = Sequence[int]
"""A situation that is only read: a board, or the bytes of one."""

EMPTY = 255
"""In place of a state: no instance stands here. An instance that has ended leaves its place."""
UNBORN = 254
"""In place of a state: the write has not been offered yet."""

# Every instance begins with its state and the set of resources that its rows have given it.
STATE, OWNS = 0, 1

# A request. WAIT is its wait clock, TIMER its armed retry, KNOWN says that it knows the end of its span, PAID
# that the present outage has cost it a launch, ATTEMPTS how often the scheduler may still send it back.
ISSUES, DEFERS, WAIT, TIMER, KNOWN, PAID, ATTEMPTS = range(2, 9)
REQUEST_WIDTH = 9
UNARMED, RUNNING, OUT = range(3)  # of WAIT
ARMED, AT_ONCE = 1, 2  # of TIMER; 0 is none

# A hold or a write. BUSY is the world's own knowledge that an IO is under way, whatever the rows say.
# START is the height of the tree to which a hold is anchored.
BUSY, UNITS, PINNED, VERIFIED, START, SPAN = range(2, 8)
HOLD_WIDTH = 8
TRIES = 4  # of a write, in place of PINNED
WRITE_WIDTH = 5
STORE_WIDTH = 2

# A tree, and what store and host tier have of a span.
HEIGHT, TOMB = 0, 1
CONTENT, HOST = 0, 1

NO_HOLD = [EMPTY] + [0] * (HOLD_WIDTH - 1)
NO_REQUEST = [EMPTY] + [0] * (REQUEST_WIDTH - 1)
NO_WRITE = [EMPTY] + [0] * (WRITE_WIDTH - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things begin on the board. `holds` has the one hold of each span that may have claims."""

    requests: tuple[int, ...]
    holds: tuple[int, ...]
    flying: tuple[int, ...]
    write: int
    store: int
    trees: tuple[int, ...]
    spans: tuple[int, ...]
    attached: int

    @property
    def size(self) -> int:
        """Length of a board."""
        return self.attached + 1


def places(start: int, width: int, count: int) -> tuple[int, ...]:
    """`count` places of `width`, one after the other from `start`."""
    return tuple(start + width * number for number in range(count))


def flying_places(world: World) -> int:
    """How many holds can fly at once: each has a unit of staging, save those over the host tier's own pages."""
    local = len(world.wants) * (1 + world.retractions) if world.mode is HostMode.CACHE else 0
    return world.staging + local


def lay_out(world: World) -> Layout:
    """The layout of `world`."""
    requests = places(0, REQUEST_WIDTH, len(world.wants))
    holds = places(len(requests) * REQUEST_WIDTH, HOLD_WIDTH, len(world.spans))
    flying = places(holds[-1] + HOLD_WIDTH, HOLD_WIDTH, flying_places(world))
    write = flying[-1] + HOLD_WIDTH
    store = write + WRITE_WIDTH
    trees = places(store + STORE_WIDTH, 2, 1 + max(span.tree for span in world.spans))
    spans = places(trees[-1] + 2, 2, len(world.spans))
    return Layout(requests, holds, flying, write, store, trees, spans, spans[-1] + 2)
