"""Every bound by name, with the reason for its value; `machines` refuses a declaration that names any other.

Owns numbers and the relations between them. Ticks are scheduler passes, not time: an idle loop must be paced, or
the wait budget set from a measured tick. The start values assume a tick of 5 to 20 ms.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from stagehold.specs.declare import Declared


class Limits(Declared):
    """All limits of an engine. Ticks unless the name says otherwise; each default has its reason beside it."""

    retry_interval_ticks: int = Field(default=8, ge=0)
    """Ticks between the first miss and the next launch; 0 switches paced retries off. Eight passes are about one
    prefill, which is how soon another server's write of the same prefix can have appeared."""

    retry_interval_cap: int = Field(default=128, ge=0)
    """The interval doubles with each launch of an attempt, up to here. What nobody has had for a while is asked for
    less and less often, and there are launches left for a request that waits so long that its prefix leaves the
    device."""

    retry_max_reissues: int = Field(default=8, ge=0)
    """Launches after the first one, over all causes; 0: none. Eight paced ones outlast the longest wait for a hit:
    what is not there by then will be computed sooner than found."""

    max_staged_admission_defers: int = Field(default=32, ge=1)
    """Commits refused for room while nothing runs, before the hold is dropped. Each costs a pass of an idle server,
    so this is well under a second of waiting for copies that give their slots back."""

    lookup_limit: int = Field(default=64, ge=1)
    """An existence query is small; half a second of passes means that the store is in trouble."""

    park_limit: int = Field(default=256, ge=1)
    """A parked hold waits for holds that end by fetch or ready limit; most do long before, so this is a quarter of
    the ready limit. Longer waits cost more than computing the span again."""

    fetch_limit: int = Field(default=512, ge=1)
    """Seconds, enough for a full staging buffer over a slow link; the cut then keeps the verified head."""

    ready_limit: int = Field(default=1024, ge=1)
    """Verified bytes are worth keeping for the longest wait in the queue, but not for ever: others are parked."""

    write_wait_limit: int = Field(default=4096, ge=1)
    """A queued write owns backlog only; it may wait while loads come first, until its pages are old news."""

    put_limit: int = Field(default=512, ge=1)
    """As long as a fetch may take: the same bytes over the same link."""

    tries: int = Field(default=3, ge=1)
    """Failed puts of one write before it is given up; a store that fails three in a row is the breaker's business."""

    belief_limit: int = Field(default=262_144, ge=1)
    """A store may drop pages by itself; about an hour of passes after it was last heard of, a page is worth asking
    for, or writing, once more: the write of what is there costs little."""

    absence_limit: int = Field(default=4, ge=0)
    """Half a retry interval: siblings that arrive together ask once, and the next launch of any of them asks anew.
    0: every launch asks."""

    suspect_window: int = Field(default=64, ge=1)
    """Ticks over which the breaker counts results; at `trip_results` or more it can trip."""

    trip_results: int = Field(default=8, ge=1)
    """Results the window must hold before a ratio means anything."""

    trip_ratio: float = Field(default=0.5, gt=0.0, le=1.0)
    """Share of faulty results at which the breaker trips: a store that fails every other call helps nobody."""

    open_limit: int = Field(default=128, ge=1)
    """First rest of a tripped store, twice the window, so that no result from before it counts after it."""

    open_limit_cap: int = Field(default=2048, ge=1)
    """The rest doubles with each failed probe and each relapse, up to here: four doublings, so that a healed store is
    found in time."""

    probe_limit: int = Field(default=64, ge=1)
    """All round trips of one probe; slower than a lookup may be is no sign of health."""

    probe_trips: int = Field(default=3, ge=1)
    """Round trips of the test page that a resting store must pass in a row. A store that fails every other call passes
    three with one chance in eight; more would lengthen every outage by little and help little."""

    attach_limit: int = Field(default=512, ge=1)
    """The self-test writes, reads and compares one page, through a connection that may have to be made first."""

    detach_limit: int = Field(default=512, ge=1)
    """What flies at a detach ends by fetch or put limit; waiting longer would wait for an IO that hangs."""

    group_timeout_seconds: float = Field(default=60.0, gt=0.0)
    """The only wall-clock limit, kept by the group: a rank silent for a minute is dead, or as good as dead."""

    wait_base_ticks: int = Field(default=32, ge=0)
    """`timeout` policy: how long a request is held back before the size of its hit is known."""

    wait_per_page_ticks: float = Field(default=0.25, ge=0.0)
    """`timeout` policy: what one page of the hit adds; computing a page takes about that long on a busy server."""

    wait_cap_ticks: int = Field(default=512, ge=0)
    """`timeout` policy: the most a request is ever held back, however much was found, once there is room for it."""

    @property
    def issue_limit(self) -> int:
        """Launches of one attempt: the first and its re-issues."""
        return 1 + self.retry_max_reissues

    def retry_interval(self, issues: int) -> int:
        """Ticks from a miss to the next launch, after `issues` launches of the attempt; 0: no timer.

        >>> list(map(Limits().retry_interval, range(1, 8)))
        [8, 16, 32, 64, 128, 128, 128]
        """
        return min(self.retry_interval_ticks << min(max(0, issues - 1), 32), self.retry_interval_cap)

    @model_validator(mode="after")
    def _refuse_what_cannot_work(self) -> Self:
        if self.retry_interval_ticks > self.retry_interval_cap:
            raise ValueError(
                f"retry_interval_ticks={self.retry_interval_ticks} exceeds retry_interval_cap="
                f"{self.retry_interval_cap}: the first interval would be longer than the longest"
            )
        if self.open_limit > self.open_limit_cap:
            raise ValueError(
                f"open_limit={self.open_limit} exceeds open_limit_cap={self.open_limit_cap}: the first rest of a "
                "tripped store would be longer than the longest"
            )
        if self.wait_base_ticks > self.wait_cap_ticks:
            raise ValueError(
                f"wait_base_ticks={self.wait_base_ticks} exceeds wait_cap_ticks={self.wait_cap_ticks}: the budget "
                "without a hit would be larger than with any"
            )
        return self


_start = Limits()
# What the start values promise each other; a configuration may leave these relations on purpose.
assert _start.wait_cap_ticks <= _start.lookup_limit + _start.park_limit + _start.fetch_limit
assert _start.fetch_limit <= _start.ready_limit
assert _start.absence_limit < _start.retry_interval_ticks
assert _start.write_wait_limit <= _start.belief_limit
assert _start.tries * _start.put_limit <= _start.write_wait_limit
assert _start.probe_limit <= _start.open_limit
assert _start.suspect_window < _start.open_limit
assert _start.trip_results <= _start.suspect_window
assert max(_start.fetch_limit, _start.put_limit) <= _start.detach_limit
assert sum(map(_start.retry_interval, range(1, _start.issue_limit))) >= _start.wait_cap_ticks
