"""What one running request has of a component beside the one that carries the tree.

Owns the request's page table (or the slot that it computes in) and the arithmetic of what it may still take. Never
allocates: it says how many slots it wants, is given them, and says which ones it is done with. Lengths are pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

NOWHERE = -1
"""Stands in a page table for a page of which the component keeps nothing that could still be read."""


class Given(NamedTuple):
    """What a publication hands to the tree: slots for its last pages, and the copies that fill them first."""

    slots: list[int]
    copies: list[tuple[int, int]]


class Share(Protocol):
    """One component's part of a running request."""

    slots: list[int]
    reserve: int

    def promise(self, slots: int) -> None:
        """At its peak it will have taken as many slots more than it begins with."""

    def wants(self, pages: int) -> int:
        """Slots that are missing for `pages` pages in all."""

    def opening(self) -> list[tuple[int, int]]:
        """Copies (from slot, to slot) that must be made before anything is computed; told once, after `grow`."""

    def grow(self, slots: Sequence[int]) -> None:
        """Take the slots that were wanted."""

    def outlived(self, page: int) -> list[int]:
        """Own slots that nothing reads any more once `page` whole pages are computed."""

    def drop(self, slots: Sequence[int]) -> None:
        """These slots were outlived, and are the pool's again."""

    def passed(self, page: int) -> None:
        """`page` whole pages are computed: what they do not look back to is not protected any more."""

    def own(self) -> list[int]:
        """Slots that are the request's and not the tree's."""

    def due(self, published: int) -> int:
        """Slots that it may still take beyond those it has, with `published` pages in the tree."""

    def fresh(self, *, whole: bool) -> int:
        """Slots besides its own that a publication fills; `whole`: all that is computed is published."""

    def give(self, first: int, last: int, fresh: Sequence[int]) -> Given:
        """Hand over what it has of pages [first, last)."""

    def shown(self, first: int, slots: Sequence[int]) -> None:
        """The tree shows these slots for the pages from `first` on."""


class WindowShare:
    """A page table of which only the last window, and what is computed behind it, is filled."""

    __slots__ = ("_hit", "_passed", "_promise", "_published", "_window", "reserve", "slots")

    def __init__(self, window: int, hit: int, shown: Sequence[int]) -> None:
        self._window = window
        self._hit = self._published = self._passed = hit
        self._promise = 0
        self.reserve = 0
        self.slots = [NOWHERE] * (hit - len(shown)) + list(shown)

    def promise(self, slots: int) -> None:
        """At its peak it will have taken as many slots more than it begins with."""
        self._promise = slots

    def wants(self, pages: int) -> int:
        """See `Share`."""
        return max(0, pages - len(self.slots))

    def opening(self) -> list[tuple[int, int]]:
        """See `Share`: a window is read where it lies."""
        return []

    def grow(self, slots: Sequence[int]) -> None:
        """See `Share`."""
        self.slots.extend(slots)

    def outlived(self, page: int) -> list[int]:
        """See `Share`."""
        last = max(self._published, page - self._window)
        return [slot for slot in self.slots[self._published : last] if slot != NOWHERE]

    def drop(self, slots: Sequence[int]) -> None:
        """See `Share`."""
        gone = set(slots)
        behind = self.slots[self._published :]
        self.slots[self._published :] = [NOWHERE if slot in gone else slot for slot in behind]

    def passed(self, page: int) -> None:
        """See `Share`."""
        self._passed = page
        behind = min(self._published, max(0, page - self._window))
        self.slots[:behind] = [NOWHERE] * behind

    def own(self) -> list[int]:
        """See `Share`."""
        return [slot for slot in self.slots[self._published :] if slot != NOWHERE]

    def due(self, published: int) -> int:
        """See `Share`: what it published and still protects was promised to it as well."""
        first = max(self._hit, max(published, self._passed) - self._window)
        return max(0, self._promise - len(self.own()) - max(0, published - first))

    def fresh(self, *, whole: bool) -> int:  # noqa: ARG002
        """See `Share`: the pages themselves are handed over."""
        return 0

    def give(self, first: int, last: int, fresh: Sequence[int]) -> Given:
        """See `Share`: the last pages without a gap."""
        assert not fresh
        start = last
        while start > first and self.slots[start - 1] != NOWHERE:
            start -= 1
        self._published = last
        return Given(self.slots[start:last], [])

    def shown(self, first: int, slots: Sequence[int]) -> None:
        """See `Share`; what lies before is out of reach, and may go at any time."""
        self.slots[:first] = [NOWHERE] * first
        self.slots[first : first + len(slots)] = slots


class StateShare:
    """The one slot that the request computes in, filled from the checkpoint that it begins with.

    Without one, as happens where the component gates nothing, it begins anew in the middle of its prefix: such a state
    is nobody else's, and no checkpoint is taken of it.
    """

    __slots__ = ("_is_of_prefix", "_source", "reserve", "slots")

    def __init__(self, hit: int, shown: Sequence[int]) -> None:
        assert len(shown) <= (hit > 0), "a checkpoint is one slot"
        self._source = list(shown)
        self._is_of_prefix = len(shown) == (hit > 0)
        self.reserve = 0
        self.slots: list[int] = []

    def promise(self, slots: int) -> None:
        """It takes its one slot at once, so that nothing is left to promise."""
        assert slots == 1

    def wants(self, pages: int) -> int:
        """See `Share`."""
        assert pages >= 0
        return 1 - len(self.slots)

    def opening(self) -> list[tuple[int, int]]:
        """See `Share`."""
        source, self._source = self._source, []
        return [(slot, self.slots[0]) for slot in source]

    def grow(self, slots: Sequence[int]) -> None:
        """See `Share`."""
        self.slots.extend(slots)

    def outlived(self, page: int) -> list[int]:
        """See `Share`: its one slot is read to the end."""
        assert page >= 0
        return []

    def drop(self, slots: Sequence[int]) -> None:
        """See `Share`."""
        assert not slots

    def passed(self, page: int) -> None:
        """See `Share`: a checkpoint that it began with was copied."""
        assert page >= 0

    def own(self) -> list[int]:
        """See `Share`."""
        return self.slots

    def due(self, published: int) -> int:
        """See `Share`."""
        assert published >= 0
        return 1 - len(self.slots)

    def fresh(self, *, whole: bool) -> int:
        """See `Share`: a checkpoint can be taken where the state stands at the end of the last page."""
        return 1 if whole and self._is_of_prefix else 0

    def give(self, first: int, last: int, fresh: Sequence[int]) -> Given:
        """See `Share`: a copy, since the request goes on computing in its own."""
        assert first < last
        return Given(list(fresh), [(self.slots[0], slot) for slot in fresh])

    def shown(self, first: int, slots: Sequence[int]) -> None:
        """See `Share`: what the tree shows is not computed in."""
