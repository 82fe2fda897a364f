"""Every closed set of answers: what decisions may return, how a visit may end, where a hit token may go.

Data only. A consumer matches all members; a test produces each of them. Members are integers because the
compiled step finds a row by position and the audit log stores them; their order is part of the record layout.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Launch(IntEnum):
    """`queued` and `retry`, asked in the order CAP, TOO_SHORT, KNOWN (host), STORE_OPEN, KNOWN, DECLINED, LOOKUP."""

    LOOKUP = 0
    KNOWN = 1
    TOO_SHORT = 2
    DECLINED = 3
    STORE_OPEN = 4
    CAP = 5


class Answer(IntEnum):
    """What a lookup found, after the agreement of all ranks."""

    HIT = 0
    MISS = 1
    BELOW_THRESHOLD = 2


class Evaluate(IntEnum):
    """A visit to a request that has a claim."""

    LOCKED = 0
    LOST = 1
    COVERED = 2
    UNWAITED = 3


class HoldEnd(IntEnum):
    """How a hold left its claimants; one member for each terminal state of *hold*."""

    SPLICED = 0
    COVERED = 1
    LOST = 2
    EXPIRED = 3
    FAILED = 4
    DROPPED = 5


class Commit(IntEnum):
    """What was delivered against what was promised, and whether it fits."""

    DELIVERED = 0
    MORE = 1
    NOTHING = 2
    UNFIT = 3
    PARTIAL = 4
    NO_ROOM = 5
    DEFERRED = 6
    DEFER_CAP = 7


class Resolve(IntEnum):
    """After a lost anchor: is a launch left?"""

    RETRY = 0
    CAP = 1


class StillCovered(IntEnum):
    """Admission from `covered`: does the live tree still reach the known end?"""

    COMMIT = 0
    SHRUNK = 1


class IoCommit(IntEnum):
    """The one look at the live tree before a fetch; takes staging, pin and io together or nothing."""

    PINNED = 0
    NO_ANCHOR = 1
    TOO_LARGE_TO_PIN = 2
    LOCAL = 3
    PIN_FULL = 4
    NO_STAGING = 5
    HEAD_BUSY = 6
    LOST = 7
    COVERED = 8
    OVERSIZE = 9
    STORE_OPEN = 10


class Fetched(IntEnum):
    """Verified pages of a fetch that ended, shortest rank."""

    WHOLE = 0
    HEAD = 1
    NOTHING = 2


class Cut(IntEnum):
    """A fetch cut by its limit or by a visit that will not wait."""

    USABLE = 0
    HOPELESS = 1


class Offer(IntEnum):
    """The gates of a write intent, in this order."""

    QUEUE = 0
    OFF = 1
    KEYLESS = 2
    BELIEVED = 3
    IN_FLIGHT = 4
    UNCOVERED = 5
    FULL = 6
    NEVER_FITS = 7


class Start(IntEnum):
    """May a queued write begin?"""

    COPY = 0
    HOSTED = 1
    BLOCKED = 2
    GONE = 3


class Copied(IntEnum):
    """A device-to-staging copy ended; is the write still wanted, and is there a store to put it to?"""

    WANTED = 0
    UNWANTED = 1
    KEPT = 2


class PutEnded(IntEnum):
    """How a put ended."""

    STORED = 0
    FAILED = 1
    SPENT = 2


class Result(IntEnum):
    """The breaker's window after one agreed result."""

    CLEAN = 0
    FAULTY = 1
    TRIPPED = 2


class Probed(IntEnum):
    """The breaker's probe."""

    GOOD = 0
    BAD = 1


class Started(IntEnum):
    """The self-test of a store that is being attached."""

    READY = 0
    REFUSED = 1


class Agreed(IntEnum):
    """The tick's collective."""

    SAME = 0
    DIVERGED = 1
    QUARANTINE = 2


class Birth(IntEnum):
    """How a (node, component) comes to be."""

    COMPUTED = 0
    FETCHED = 1
    BARE = 2


class Evict(IntEnum):
    """What leaves when a tier is short."""

    TOMBSTONE = 0
    DELETE = 1


class Loss(IntEnum):
    """Where a queried token ended that was not spliced; one member for each end."""

    TRIMMED = 0
    COVERED = 1
    LOST = 2
    SHORT_STAGING = 3
    EXPIRED = 4
    UNWAITED = 5
    CUT = 6
    FAILED = 7
    SHORT_DEVICE = 8
    PARTIAL = 9
    OVERSIZE = 10
    DROPPED = 11
    ABORTED = 12


class Thrown(StrEnum):
    """Why pages that were read from the store were of no use to whoever asked for them."""

    COVERED = "covered"  # the device had them by the time of the splice
    UNSPLICED = "unspliced"  # their hold ended before a splice; host memory may keep them
    FAILED = "failed"  # too few came back
    DRAINED = "drained"  # nobody wanted them any more when they came


class Decline(IntEnum):
    """Why a launch was declined."""

    QUERY_RATE = 0
    LOAD_LIMIT = 1
    ABSENT = 2
    LOSING = 3


class SkipReason(StrEnum):
    """Why `select` gives no plan in this pass; the next pass may ask again."""

    WAITING_LOOKUP = "waiting_lookup"
    WAITING_FETCH = "waiting_fetch"
    SIBLING_VISIT = "sibling_visit"
    NO_ROOM = "no_room"
    RETRY_NOW = "retry_now"
    NO_BUDGET = "no_budget"


class AdmissionOutcome(StrEnum):
    """What `commit` tells the scheduler.

    After NO_ROOM and DEFERRED the device has no room for more in this pass; the other refusals concern this request
    alone. Each is worth another `select` in a later pass.
    """

    ADMITTED = "admitted"
    NO_ROOM = "no_room"
    DEFERRED = "deferred"
    DEFER_CAP = "defer_cap"
    UNFIT = "unfit"
    SHRUNK = "shrunk"


class Taken(IntEnum):
    """The answer of a step without a decision, and of one that was refused."""

    TAKEN = 100
    REFUSED = 101


class HostMode(StrEnum):
    """What staging is: a tier of its own, or a buffer that no node ever keeps."""

    CACHE = "cache"
    BUFFER_ONLY = "buffer_only"


class WritePolicy(StrEnum):
    """When computed pages are offered to the store."""

    WRITE_THROUGH = "write_through"
    WRITE_THROUGH_SELECTIVE = "write_through_selective"
    WRITE_BACK = "write_back"


class ComponentKind(StrEnum):
    """Kinds of KV that a model can have beside the one of full attention."""

    SLIDING_WINDOW = "sliding_window"
    CHECKPOINT = "checkpoint"


class WindowWrites(StrEnum):
    """What of a window's pages is stored: all of them, or the last window of what is published at once."""

    ALL = "all"
    LAST = "last"


class FetchGate(StrEnum):
    """Whether the store is left alone while computing is faster than waiting for it."""

    OFF = "off"
    AUTO = "auto"


class Eviction(StrEnum):
    """Which pages leave the device first: those not used for longest, or those that were used once."""

    LRU = "lru"
    S3FIFO = "s3fifo"


class DivergencePolicy(StrEnum):
    """What the ranks do when they did not record the same: stop, or go on without the store tier."""

    STOP = "stop"
    QUARANTINE = "quarantine"


class PrefetchPolicy(StrEnum):
    """How long an attempt may be held back because of the store."""

    BEST_EFFORT = "best_effort"
    TIMEOUT = "timeout"
    WAIT_COMPLETE = "wait_complete"
