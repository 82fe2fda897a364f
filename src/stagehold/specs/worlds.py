"""The abstract worlds in which the table check drives request, hold, write and store together.

Data only: what each world contains and what may happen in it. How it happens is written in
`stagehold.machines.explorer`; what the machines do then is written in their rows.

A world has a few requests, each wanting one span of one live tree. A tree is a height: 0 the anchor is gone,
1 it is live, 2 half of what is missing is live as well, 3 all of it. Staging and pins are counted in units: a
span that ends at height `end` needs `end` minus the live height, so a whole fetch takes two and a cut can split it.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from stagehold.specs.declare import Declared
from stagehold.specs.outcomes import HostMode, PrefetchPolicy

GONE, ANCHOR, HALF, WHOLE = range(4)
"""The heights of a live tree."""


class Breaker(StrEnum):
    """What the store's breaker may do in a world."""

    QUIET = "quiet"  # healthy for ever
    LIVE = "live"  # trips, rests, probes and heals at any moment
    OPEN = "open"  # open from the start and for ever


class Span(Declared):
    """What a request may want: the part of `tree` between its anchor and the height `end`."""

    tree: int = 0
    end: int = Field(default=WHOLE, ge=HALF, le=WHOLE)


class World(Declared):
    """One world. Units: `staging` and `pins` in halves of a fetch and anchors, `device` in admitted requests."""

    name: str
    why: str
    spans: tuple[Span, ...] = (Span(),)
    wants: tuple[int, ...] = (0, 0)
    """For each request the number of the span that it wants."""
    mode: HostMode = HostMode.BUFFER_ONLY
    policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT
    staging: int = Field(default=2, ge=1)
    pins: int = Field(default=1, ge=0)
    device: int = Field(default=2, ge=1)
    issue_limit: int = Field(default=2, ge=1)
    defer_limit: int = Field(default=1, ge=0)
    tries: int = Field(default=1, ge=0)
    """Failed puts after which a write is still tried again."""
    retractions: int = Field(default=0, ge=0)
    """How often the scheduler may send each request back to the queue."""
    paced: bool = True
    """False: a retry interval of zero, so that no retry has a timer."""
    breaker: Breaker = Breaker.QUIET
    writer: bool = False
    """One write may be offered, and takes staging while holds are parked."""
    flush_detach: bool = False
    """The caller may flush the tree and detach the store at any moment."""
    root: bool = False
    """The spans start at the root: there is no anchor to pin or to lose."""
    tombstones: bool = False
    """Windows come and go, so that the joint match may end before the FULL match does."""
    declines: bool = False
    """Rate or load limits may decline any launch."""
    large_anchor: bool = False
    """The anchor alone may turn out larger than the pin cap."""


OVERLAPPING = (Span(end=HALF), Span(end=WHOLE))
TWO_TREES = (Span(tree=0), Span(tree=1))

DEFAULT_WORLDS = (
    World(name="shared span", why="two requests share one hold, one launch each", issue_limit=1),
    World(name="one more launch", why="a loss, an expiry or a failure is launched again", wants=(0,), issue_limit=3,
          tombstones=True, declines=True, large_anchor=True),
    World(name="from the root", why="no anchor: empty pins, nothing to lose", root=True, issue_limit=1),
    World(name="best effort", why="a wait budget of zero: nobody is skipped", issue_limit=1,
          policy=PrefetchPolicy.BEST_EFFORT, tombstones=True),
    World(name="retraction", why="a handle is sent back and comes again", wants=(0,), retractions=1, tombstones=True),
    World(name="host tier", why="pages lie in staging already", wants=(0,), mode=HostMode.CACHE, tombstones=True),
    World(name="breaker", why="trips and heals at any moment", wants=(0,), breaker=Breaker.LIVE, issue_limit=3),
    World(name="breaker without timers", why="a retry rests until somebody sends it", wants=(0,),
          breaker=Breaker.LIVE, paced=False, issue_limit=3),
    World(name="store open for ever", why="nobody may wait for it", breaker=Breaker.OPEN, retractions=1),
    World(name="writer", why="a write takes staging from parked holds", wants=(0,), writer=True, tombstones=True),
    World(name="writer in an outage", why="a stored write must not wake what the breaker holds back", wants=(0,),
          writer=True, breaker=Breaker.LIVE, issue_limit=1),
    World(name="writer of hosted pages", why="no copy before the put", wants=(0,), writer=True,
          mode=HostMode.CACHE, issue_limit=1),
    World(name="decrees", why="flush and detach at any moment, also in an outage", wants=(0,), flush_detach=True,
          writer=True, breaker=Breaker.LIVE, issue_limit=1),
    World(name="decrees under two claims", why="a decree tells every claimant", flush_detach=True, issue_limit=1),
    World(name="overlapping spans", why="the longer waits for the shorter, the shorter for the pin",
          spans=OVERLAPPING, wants=(0, 1), staging=3, issue_limit=1),
    World(name="larger than staging", why="can never be fetched whole", wants=(0,), staging=1, tombstones=True),
)  # fmt: skip
"""Worlds for every commit: together more than 200,000 situations in less than a minute."""

FULL_WORLDS = (
    World(name="full: shared span, tombstones", why="windows come and go under a shared hold", tombstones=True),
    World(name="full: shared span, retractions", why="each request comes again once", retractions=1),
    World(name="full: shared span from the root", why="no anchor", root=True, tombstones=True),
    World(name="full: host tier", why="pages lie in staging already", mode=HostMode.CACHE, issue_limit=1),
    World(name="full: breaker", why="an outage under a shared hold", breaker=Breaker.LIVE),
    World(name="full: breaker without timers", why="only recoveries and losses send a retry",
          breaker=Breaker.LIVE, paced=False, issue_limit=1),
    World(name="full: outage costs one launch", why="three launches, two tries, an outage", wants=(0,), writer=True,
          breaker=Breaker.LIVE, issue_limit=3, tombstones=True),
    World(name="full: writer", why="staging is short for two requests and a write", writer=True, issue_limit=1),
    World(name="full: flush and detach", why="decrees under a shared hold", flush_detach=True),
    World(name="full: two spans", why="two trees, staging for one fetch", spans=TWO_TREES, wants=(0, 1), issue_limit=1),
    World(name="full: two spans, one pin", why="staging for both, so that the pin is what is short", spans=TWO_TREES,
          wants=(0, 1), staging=4, issue_limit=1),
    World(name="full: overlapping spans, host tier", why="host pages of the one or the other", spans=OVERLAPPING,
          wants=(0, 1), mode=HostMode.CACHE, issue_limit=1, policy=PrefetchPolicy.BEST_EFFORT),
    World(name="full: overlapping spans", why="staging for the longer one", spans=OVERLAPPING, wants=(0, 1)),
    World(name="full: overlapping spans, staging for both", why="the pin is what is short", spans=OVERLAPPING,
          wants=(0, 1), staging=3),
    World(name="full: overlapping spans, breaker", why="an outage between two spans", spans=OVERLAPPING, wants=(0, 1),
          breaker=Breaker.LIVE, issue_limit=1),
    World(name="full: overlapping spans, decrees", why="a flush between two spans", spans=OVERLAPPING, wants=(0, 1),
          flush_detach=True, issue_limit=1),
    World(name="full: everything at once", why="one request, and all that may happen to it", wants=(0,),
          mode=HostMode.CACHE, writer=True, breaker=Breaker.LIVE, flush_detach=True, issue_limit=1),
    World(name="full: decrees and retraction", why="one request, writer, outage, flush, detach", wants=(0,),
          writer=True, breaker=Breaker.LIVE, flush_detach=True, retractions=1, issue_limit=1),
)  # fmt: skip
"""Worlds for an hour: run them when a row has changed, and commit the figures."""
