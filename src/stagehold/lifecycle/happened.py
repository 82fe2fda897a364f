"""What is counted where it happens, because no record of the audit says it.

Owns counts and decides nothing: tokens that were put off, pages that were read and what became of them, pages that
went to the device and came from it, prompts that were admitted. Everything here only grows, but for what it remembers
of reads that have not ended and of holds that were not spliced yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from stagehold.cache.components.full import SPINE
from stagehold.lifecycle.data import Admission, HoldData
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import IoCommit, Thrown

PUT_OFF = {IoCommit.PIN_FULL: "pin", IoCommit.NO_STAGING: "staging", IoCommit.HEAD_BUSY: "head"}
"""What a parked hold waits for, by the outcome that says so; `head`: a shorter span over the same head."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Pages of all components, and their bytes (0 where no tensors are attached)."""

    pages: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.pages + other.pages, self.bytes + other.bytes)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Admitted:
    """Of all admissions: how many, tokens of their prompts, and where those that need no computing came from.

    One act counts all four, so that a share of them is a share of the same requests.
    """

    requests: int = 0
    prompt: int = 0
    device: int = 0
    store: int = 0

    def plus(self, admission: Admission, prompt_tokens: int) -> Admitted:
        """These and one more."""
        return Admitted(
            self.requests + 1,
            self.prompt + prompt_tokens,
            self.device + admission.device_hit_tokens,
            self.store + admission.store_hit_tokens,
        )


@dataclass(frozen=True, slots=True)
class Read:
    """What a fetch asks the store for: (pages, bytes of one) in the order of its keys, the tree's from page `first`."""

    first: int
    sizes: tuple[tuple[int, int], ...]
    counted: int = 0  # leading pages that were counted when the fetch was cut

    def amount(self, start: int, end: int) -> Amount:
        """Of the pages from place `start` to place `end`."""
        found, place = NOTHING, 0
        for pages, size in self.sizes:
            inside = max(0, min(end, place + pages) - max(start, place))
            found += Amount(inside, inside * size)
            place += pages
        return found


class Happened:
    """The counts of one engine."""

    def __init__(self, config: EngineConfig) -> None:
        self._page_bytes = {SPINE: config.page_bytes} | {
            one.name: one.parts * one.page_part_bytes for one in config.components
        }
        self.put_off: Counter[str] = Counter()  # tokens of parked spans, each time, by what they wait for
        self.read = NOTHING  # verified, from the store
        self.thrown: dict[Thrown, Amount] = dict.fromkeys(Thrown, NOTHING)
        self.to_device = NOTHING
        self.from_device = NOTHING
        self.admitted = Admitted()
        self._reads: dict[int, Read] = {}  # by number of the operation
        self._held: dict[int, tuple[int, Amount, int]] = {}  # by hold: first page read, all of it, pages of the tree

    def parked(self, outcome: IoCommit, tokens: int) -> None:
        """A parked hold of `tokens` tokens was tried; counted where it has to wait."""
        if outcome in PUT_OFF:
            self.put_off[PUT_OFF[outcome]] += tokens

    # Reads

    def sent(self, operation: int, hold: HoldData, ready: int) -> None:
        """A fetch begins; the first `ready` pages behind the base are not asked for."""
        sizes = [(len(hold.staging) - ready, self._page_bytes[SPINE])]
        sizes += [(len(part.staging), self._page_bytes[name]) for name, part in hold.parts.items()]
        self._reads[operation] = Read(hold.base + ready, tuple(sizes))

    def cut(self, operation: int, hold: int, good: int) -> None:
        """A hold keeps the first `good` pages that a fetch has read; the fetch runs on for nobody."""
        read = self._reads[operation]
        self._reads[operation] = Read(read.first, read.sizes, good)
        self._keep(hold, read, good)

    def ended(self, operation: int, hold: int, good: int, *, wanted: bool) -> None:
        """A fetch has ended and read `good` pages, for a hold that wants them, or for nobody any more."""
        read = self._reads.pop(operation)
        if wanted:
            self._keep(hold, read, good)
        else:
            rest = read.amount(read.counted, good)
            self.read += rest
            self._throw(Thrown.DRAINED, rest)

    def withdrawn(self, operation: int) -> None:
        """A fetch was never sent off."""
        self._reads.pop(operation, None)

    def _keep(self, hold: int, read: Read, good: int) -> None:
        amount = read.amount(0, good)
        self.read += amount
        self._held[hold] = (read.first, amount, min(max(0, good), read.sizes[0][0]))

    def loaded(self, hold: int, live: int) -> None:
        """A hold is spliced behind `live` pages: what it had read in front of that is of no use."""
        first, _, pages = self._held.pop(hold, (live, NOTHING, 0))
        useless = min(pages, max(0, live - first))
        self._throw(Thrown.COVERED, Amount(useless, useless * self._page_bytes[SPINE]))

    def over(self, hold: int, reason: Thrown) -> None:
        """A hold ends without a splice."""
        self._throw(reason, self._held.pop(hold, (0, NOTHING, 0))[1])

    def _throw(self, reason: Thrown, amount: Amount) -> None:
        self.thrown[reason] += amount

    # Copies

    def copied_in(self, component: str, pages: int) -> None:
        """Staging pages were sent to the device."""
        self.to_device += Amount(pages, pages * self._page_bytes[component])

    def copied_out(self, component: str, pages: int) -> None:
        """Pages of the device were sent to staging."""
        self.from_device += Amount(pages, pages * self._page_bytes[component])

    @property
    def open(self) -> Iterable[int]:
        """Numbers of the fetches and holds of which something is still remembered."""
        return (*self._reads, *self._held)
