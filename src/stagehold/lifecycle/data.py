"""What each instance carries besides its state: the payloads of request, hold and write.

A payload is written by the effects of its own machine and by nobody else. Machines name each other by number, so
that no instance is in a reference cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stagehold.cache.components.full import SPINE
from stagehold.cache.components.shares import Share
from stagehold.cache.keys import Chain
from stagehold.specs.outcomes import AdmissionOutcome, SkipReason


@dataclass(frozen=True, slots=True, order=True)
class Handle:
    """One attempt of one request; a late completion of an old attempt can never touch a new one."""

    rid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Plan:
    """An open visit: what admission would give. Valid until `commit` or `release`, in the same pass.

    `live_pages` of the prompt are on the device now, `promised_pages` (those among them) would be there after `commit`;
    `extend_tokens` would be computed in this pass, at most the budget of `select`.
    """

    handle: Handle
    serial: int
    live_pages: int
    promised_pages: int
    extend_tokens: int


@dataclass(frozen=True, slots=True)
class Skip:
    """No plan for this request in this pass, and why."""

    handle: Handle
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class Admission:
    """What `commit` gave. `slots` holds one page slot for each page of the hit prefix, in order.

    `extend_tokens` is what this pass computes of the prompt, after the hit: at most the budget of `select`. What the
    prompt has beyond both is for later passes, each with an `extend` of its own. It may be more than `chunk_tokens`.
    """

    handle: Handle
    outcome: AdmissionOutcome
    hit_tokens: int = 0
    device_hit_tokens: int = 0
    store_hit_tokens: int = 0
    extend_tokens: int = 0
    slots: tuple[int, ...] = ()

    @property
    def admitted(self) -> bool:
        """Whether the request runs now."""
        return self.outcome is AdmissionOutcome.ADMITTED


@dataclass(frozen=True, slots=True)
class Extension:
    """Page slots newly allocated for a request, in order; empty when its last page had room."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The device pool cannot give the pages; retract somebody, or wait."""

    wanted_pages: int
    room_pages: int


@dataclass(slots=True, eq=False)
class RequestData:
    """Payload of *request*. Lengths are pages unless the name says tokens."""

    handle: Handle
    chain: Chain
    namespace: bytes
    prompt_tokens: int
    max_new_tokens: int
    hit_limit: int  # whole pages of the prompt that leave at least one token to compute
    known_end: int = 0  # pages from the root that the store is known to reach; 0: not known
    covered_end: int = 0  # pages that the tree had when it was found to be covered
    query: int = 0  # operation number of the lookup in flight
    asked_from: int = 0  # first page that the latest lookup asked for
    asked_to: int = 0  # end of what it asked for
    asked_at: int = 0  # lessons that the beliefs had taken when it was sent
    consulted: bool = False  # the store was asked for what follows the pages that host memory has
    doubtful: bool = False  # the store failed while it answered: what it did not find may be there
    missing: int = 0  # first page that it did not find
    wanted: bytes = b""  # page key whose write wakes the retry
    hold: int = 0  # number of the hold that this request has a claim on
    claim_tokens: int = 0  # open tokens of that claim
    barred: bool = False  # its books were found wrong: it gets no further launch
    look_again: bool = False  # a lookup found nothing: a write acknowledged since then makes the retry due
    wait_from: int = -1  # tick of the first visit that was skipped because of the store alone
    lock: Any = None  # receipt of the path lock
    pin: Any = None  # receipt of a pin that only some policies give to a request
    slots: list[int] = field(default_factory=list)  # page table while committed: tree pages, then own pages
    hit: int = 0  # pages of `slots` that the tree had at admission
    published: int = 0  # pages of `slots` that belong to the tree
    passed: int = 0  # whole pages that are computed, as far as its lock knows
    shares: dict[str, Share] = field(default_factory=dict)  # what it has of the other components, while committed
    n_tokens: int = 0  # tokens with a place in `slots`
    reserve: int = 0  # pages promised by admission and not yet allocated
    store_hit_tokens: int = 0


@dataclass(slots=True)
class Brought:
    """What a hold brings of another component: pages [first, its end), whole, or the one checkpoint at its end."""

    first: int
    staging: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class HoldData:
    """Payload of *hold*: the span [start, last) of `chain`, where `start` is what can be gone on from without it.

    `base` is the live prefix that it is anchored at, from IO commit on: `start` or more, where the pages between have
    lost what other components need there. The pages of [base, last) are staged.
    """

    chain: Chain
    namespace: bytes
    start: int
    last: int
    key: bytes  # page key of the last page
    claims: list[int] = field(default_factory=list)  # request numbers, in order of their claims
    base: int = -1
    staging: list[int] = field(default_factory=list)  # staging page of each page of [base, last)
    parts: dict[str, Brought] = field(default_factory=dict)  # what it declared of other components
    pin: Any = None
    span: Any = None  # tree receipt of the pages that a load writes
    operation: int = 0
    visitor: int = 0  # the request whose visit is open
    passed: int = 0  # younger holds that took staging past this one
    fetched: int = 0  # pages that the store was asked for, until they are spliced

    @property
    def anchor(self) -> int:
        """Live pages without which it cannot be joined."""
        return max(self.start, self.base)

    @property
    def units(self) -> int:
        """Staging pages that it owns, of all components."""
        return len(self.staging) + sum(len(part.staging) for part in self.parts.values())


@dataclass(slots=True, eq=False)
class WriteData:
    """Payload of *write*: pages [first, last) of one component of `chain`, and what they are called there."""

    chain: Chain
    namespace: bytes
    first: int
    last: int
    keys: tuple[bytes, ...]
    component: str = SPINE
    parent: bytes = b""  # key of the page before it, where that has to be stored first
    small: bool = False
    lane: bytes = b""  # the tenant that it takes turns for, where tenants have quotas
    since: int = 0  # tick in which it was admitted
    staging: list[int] = field(default_factory=list)
    span: Any = None
    operation: int = 0
    not_before: int = 0
    unwanted: bool = False

    @property
    def pages(self) -> int:
        """Pages of the intent."""
        return self.last - self.first
