"""Where the bytes of every page are, as declared: on the device, in host memory, in both, or nowhere any more.

The book of checked mode. The tree tells it what enters and leaves, the host tiers what they keep and give up; every
move is looked up in the rows of *residency*, page by page, and one that has no row raises. Steps nothing: it watches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum

from stagehold.cache.components.full import SPINE
from stagehold.cache.errors import InvariantBroken
from stagehold.specs.outcomes import Birth, Evict
from stagehold.specs.residency import RESIDENCY, ResidencyState

_MOVES = RESIDENCY.legal_moves()

S = ResidencyState

ON_DEVICE = (S.DEVICE, S.BOTH)
IN_HOST = (S.BOTH, S.STAGING)


class Residency:
    """Where each component of each page is, by its page key. What is nowhere has no entry.

    `loading`: what enters the tree now is spliced, not computed.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[bytes, str], ResidencyState] = {}
        self.counts: Counter[tuple[str, ResidencyState]] = Counter()  # pages by component and place
        self.loading = False

    def step(self, key: bytes, component: str, event: str, outcome: IntEnum | None = None) -> None:
        """Move one component of one page along the row for the event; raises InvariantBroken if there is none."""
        place = self.places.get((key, component), S.UNBORN if event == "birth" else S.GONE)
        target = _MOVES.get((place, event, outcome))
        if target is None:
            name = f"{event} {outcome.name}" if outcome is not None else event
            page = f"{component} of page {key[:4].hex()}"
            raise InvariantBroken(f"residency: no row for {name} in {place.name.lower()} ({page})")
        if place is not S.UNBORN:
            self.counts[component, place] -= 1
        if target is S.GONE:
            del self.places[key, component]
        else:
            self.places[key, component] = S(target)
            self.counts[component, S(target)] += 1

    def of(self, key: bytes, component: str = SPINE) -> ResidencyState | None:
        """Where one component of a page is."""
        return self.places.get((key, component))

    # What the tree tells

    def entered(self, keys: Iterable[bytes], component: str, *, bare: bool) -> None:
        """Pages are in the tree now: of this component with slots, or `bare` of them."""
        for key in keys:
            place = self.of(key, component)
            if bare:
                if place in (None, *ON_DEVICE):
                    self.step(key, component, "birth", Birth.BARE)
            elif place is S.STAGING:
                self.step(key, component, "load" if self.loading else "recomputed")
            elif place is S.TOMBSTONE:
                self.step(key, component, "attach")
            else:
                self.step(key, component, "birth", Birth.COMPUTED)

    def emptied(self, keys: Iterable[bytes], component: str) -> None:
        """The slots of a component beside the tree's own went, the pages stay."""
        for key in keys:
            self.step(key, component, "evict", None if self.of(key, component) is S.BOTH else Evict.TOMBSTONE)

    def left(self, keys: Iterable[bytes], others: Sequence[str], *, evicted: bool) -> None:
        """Pages are in the tree no more, with all that any component had there on the device."""
        for key in keys:
            if self.of(key) is S.BOTH:
                self.step(key, SPINE, "evict")
            else:
                self.step(key, SPINE, *(("evict", Evict.DELETE) if evicted else ("delete",)))
            for component in others:
                self._left(key, component)

    def _left(self, key: bytes, component: str) -> None:
        place, lives = self.of(key, component), self.of(key) is not None
        if place is S.BOTH:
            self.step(key, component, "evict")
        elif place is S.DEVICE and lives:
            self.step(key, component, "evict", Evict.TOMBSTONE)
        elif place is not S.STAGING and not lives:
            self.step(key, component, "delete")

    # What the host tiers tell

    def kept(self, key: bytes, component: str) -> None:
        """Host memory has the page now."""
        place = self.of(key, component)
        if place is None:
            self.step(key, component, "birth", Birth.FETCHED)
        else:
            self.step(key, component, "stage" if place is S.TOMBSTONE else "backed_up")

    def dropped(self, key: bytes, component: str, others: Sequence[str] = ()) -> None:
        """Host memory has it no more; with the last copy of a page go the tombstones of `others`."""
        if self.of(key, component) is S.BOTH:
            self.step(key, component, "evict_host")
            return
        stays = component != SPINE and self.of(key) is not None
        self.step(key, component, "evict_host", Evict.TOMBSTONE if stays else Evict.DELETE)
        for other in others:
            if self.of(key, other) is S.TOMBSTONE:
                self.step(key, other, "delete")

    # Counting again

    def check(self, where: str, component: str, pages: AbstractSet[bytes], places: Sequence[ResidencyState]) -> None:
        """Raise InvariantBroken unless exactly `pages` of the component are in one of `places`."""
        told = {key for (key, name), place in self.places.items() if name == component and place in places}
        if told != set(pages):
            odd = sorted(key[:4].hex() for key in told ^ set(pages))
            raise InvariantBroken(f"residency: {component} {where}: the book says {len(told)} pages, a count says "
                                  f"{len(pages)}; they differ about {odd[:3]}")  # fmt: skip

    def count(self, component: str, places: Sequence[ResidencyState]) -> int:
        """Pages of a component in one of `places`."""
        return sum(self.counts[component, place] for place in places)


class Shelf:
    """What a host tier tells the book: its keys are page keys with a tag behind them."""

    def __init__(self, book: Residency, component: str, tag: bytes, others: Sequence[str]) -> None:
        self._book = book
        self._component = component
        self._size = -len(tag) or None
        self._others = tuple(others)

    def kept(self, key: bytes) -> None:
        """It has this page now."""
        self._book.kept(key[: self._size], self._component)

    def dropped(self, key: bytes) -> None:
        """It has it no more."""
        self._book.dropped(key[: self._size], self._component, self._others)
