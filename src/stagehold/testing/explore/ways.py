"""How long it takes from every situation until everything has ended, when nothing goes wrong any more.

Owns the walk over the steps of an ordinary scheduler, which are moves that the search has made: nothing is run here.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagehold.specs.limits import Limits
from stagehold.testing.explore.search import FAIR_END, UNKNOWN, Graph
from stagehold.testing.explore.small import SmallWorld


@dataclass(frozen=True, slots=True)
class Lasting:
    """The most `ticks` to the end from anywhere, where they begin, and the situations from which there is no end."""

    ticks: int
    longest: int
    endless: tuple[int, ...]
    unknown: int


def limit_of(world: SmallWorld) -> int:
    """Ticks within which everything must have ended, from the limits alone.

    Each launch of an attempt may be paced, ask, park and fetch; then the hold may stay ready; deferrals, the run and
    what it writes come last, and the requests may do all that one after the other. A breaker that is open heals first.
    """
    limits: Limits = world.config().limits
    launch = max(1, limits.retry_interval_cap) + limits.lookup_limit + limits.park_limit + limits.fetch_limit
    attempt = limits.issue_limit * launch + limits.ready_limit + limits.max_staged_admission_defers
    writes = limits.write_wait_limit + limits.tries * (limits.put_limit + 16)
    heals = limits.open_limit_cap + limits.probe_limit + limits.detach_limit
    return heals + len(world.prompts) * (attempt + 2) + writes


def lasting(graph: Graph) -> Lasting:
    """Follow the usual steps from every situation; each is looked at once."""
    far = [-1] * len(graph.by)
    endless: list[int] = []
    unknown = 0
    for start in range(len(far)):
        way: list[int] = []
        number, seen = start, set[int]()
        while number >= 0 and far[number] < 0 and number not in seen:
            way.append(number)
            seen.add(number)
            number = graph.next[number]
        if number == UNKNOWN or (number >= 0 and far[number] == UNSURE):
            unknown += len(way)
            ticks = UNSURE
        elif number == FAIR_END:
            ticks = 0
        elif number in seen or far[number] == FOR_EVER:
            endless.append(start)
            ticks = FOR_EVER
        else:
            ticks = far[number]
        for here in reversed(way):
            if ticks < UNSURE:
                ticks += graph.ticks[here]
            far[here] = ticks
    known = [ticks if ticks < UNSURE else -1 for ticks in far]
    longest = max(range(len(known)), key=known.__getitem__)
    return Lasting(known[longest], longest, tuple(endless), unknown)


UNSURE, FOR_EVER = 1 << 30, 1 << 31
"""In place of ticks: the search was cut off on the way; there is no end."""
