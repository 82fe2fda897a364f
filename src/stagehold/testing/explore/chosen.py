"""The ends of an engine whose outcome a search chooses: a store, copies, and memory that holds names instead of bytes.

Nothing here moves by itself. An operation goes on when it is told to, and says so at the next poll; a page holds the
name of the page whose bytes a real one would hold, or the word for bytes that are half written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from stagehold.cache.stores.protocol import Progress, Verdict

TORN = b"torn"
"""What a page holds while a store may be writing to it."""


class Kind(IntEnum):
    """What a store was asked for."""

    EXISTS = 0
    GET = 1
    PUT = 2


class End(IntEnum):
    """How an operation goes on: not yet, as the store's content says, one page only, with all but the last, not at all.

    PART is no end: a get has verified its first page and flies on.
    """

    FLIES = 0
    TRUE = 1
    PART = 2
    SHORT = 3
    FAILED = 4


class Labels:
    """Device pool and staging of one rank, as the names of pages that they hold; stands in for `Bytes`."""

    def __init__(self, device_pages: int, staging_pages: int) -> None:
        self.device = [TORN] * device_pages
        self.staging = [TORN] * staging_pages

    def page(self, page: int) -> Place:
        """One staging page, as what a store is lent."""
        return Place(self, page)

    def load(self, pages: Sequence[int], slots: Sequence[int]) -> None:
        """Copy staging `pages[i]` to device `slots[i]`."""
        for page, slot in zip(pages, slots, strict=True):
            self.device[slot] = self.staging[page]

    def save(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        """Copy device `slots[i]` to staging `pages[i]`."""
        for slot, page in zip(slots, pages, strict=True):
            self.staging[page] = self.device[slot]

    def copies(self) -> tuple[Any, ...]:
        """Both pools now; see `Bytes.copies`."""
        return list(self.device), list(self.staging)

    def overwrite(self, copies: tuple[Any, ...]) -> None:
        """Put back what `copies` gave."""
        self.device[:], self.staging[:] = copies


@dataclass(frozen=True, slots=True)
class Place:
    """A staging page that is lent."""

    labels: Labels
    page: int

    def read(self) -> bytes:
        """What it holds."""
        return self.labels.staging[self.page]

    def write(self, label: bytes) -> None:
        """Let it hold `label`."""
        self.labels.staging[self.page] = label


def _places(buffers: Sequence[Any]) -> tuple[Place | None, ...]:
    """Staging pages as they are lent; the page of a store's test is none, and has no bytes here."""
    return tuple(buffer if isinstance(buffer, Place) else None for buffer in buffers)


@dataclass(slots=True, eq=False)
class Asked:
    """One operation of a store. `good` pages are verified; `news` says that the next poll has something to tell."""

    kind: Kind
    keys: tuple[bytes, ...]
    places: tuple[Place | None, ...]
    good: int = 0
    verdicts: tuple[Verdict, ...] = ()
    done: bool = False
    news: bool = False

    @property
    def lent(self) -> list[int]:
        """Staging pages that the store may still write to, or reads."""
        behind = self.good if self.kind is Kind.GET else 0
        return [place.page for place in self.places[behind:] if place is not None]


@dataclass(slots=True, eq=False)
class ChosenStore:
    """A `Store` that holds the names in `pages`, and whose operations end when and how they are told to."""

    pages: dict[bytes, None]
    name: str = "chosen"
    copyable: bool = True
    persistent: bool = False
    asked: dict[int, Asked] = field(default_factory=dict)

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:  # noqa: ARG002
        """See `Store.exists`."""
        self.asked[ticket] = Asked(Kind.EXISTS, tuple(keys), ())

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Any], tick: int) -> None:  # noqa: ARG002
        """See `Store.get_into`; the pages are torn from now on."""
        self.asked[ticket] = Asked(Kind.GET, tuple(keys), _places(buffers))
        for place in self.asked[ticket].places:
            if place is not None:
                place.write(TORN)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Any], tick: int) -> None:  # noqa: ARG002
        """See `Store.put`."""
        self.asked[ticket] = Asked(Kind.PUT, tuple(keys), _places(buffers))

    def poll(self, tick: int) -> list[Progress]:  # noqa: ARG002
        """What was told to go on since the last poll."""
        told = []
        for ticket in sorted(self.asked):
            found = self.asked[ticket]
            if found.news:
                found.news = False
                told.append(Progress(ticket, found.done, found.good, found.verdicts))
                if found.done:
                    del self.asked[ticket]
        return told

    def close(self) -> None:
        """See `Store.close`."""
        self.asked.clear()

    def go_on(self, ticket: int, end: End) -> None:
        """Let one operation go on; the next poll says so."""
        found = self.asked[ticket]
        if end is not End.FLIES:
            found.news = True
            found.done = end is not End.PART
            (self._answer, self._read, self._keep)[found.kind](found, end)

    def ends(self, ticket: int) -> tuple[End, ...]:
        """How it may go on, besides flying on and ending in truth: the faults."""
        found = self.asked[ticket]
        many = found.kind is Kind.GET and len(found.keys) - found.good > 1
        return (*((End.PART, End.SHORT) if many else ()), End.FAILED)

    def _held(self, found: Asked, end: End) -> int:
        """Leading pages that it answers well for."""
        most = {End.TRUE: len(found.keys), End.PART: found.good + 1, End.SHORT: len(found.keys) - 1}.get(end, 0)
        return next((at for at, key in enumerate(found.keys[:most]) if key not in self.pages), most)

    def _answer(self, found: Asked, end: End) -> None:
        if end is End.FAILED:
            found.verdicts = (Verdict.FAILED,)
        else:
            found.verdicts = tuple(Verdict.HIT if key in self.pages else Verdict.MISS for key in found.keys)
            found.good = self._held(found, end)

    def _read(self, found: Asked, end: End) -> None:
        good = max(found.good, self._held(found, end))
        for key, place in list(zip(found.keys, found.places, strict=True))[found.good : good]:
            if place is not None:
                place.write(key)
        found.good = good
        found.verdicts = (Verdict.HIT,) * good
        if found.done and good < len(found.keys):
            found.verdicts += (Verdict.MISS if end is End.TRUE else Verdict.FAILED,)

    def _keep(self, found: Asked, end: End) -> None:
        if end is End.FAILED:
            found.verdicts = (Verdict.FAILED,)
            return
        for key, place in zip(found.keys, found.places, strict=True):
            if place is not None and place.read() != key:
                raise AssertionError(f"page {key[:4].hex()} was put with the bytes of {place.read()[:4].hex()}")
            self.pages[key] = None
        found.good, found.verdicts = len(found.keys), (Verdict.STORED,) * len(found.keys)


@dataclass(slots=True, eq=False)
class ChosenCopies:
    """`Copies` that end when they are told to; what they copy is there at once."""

    flying: dict[int, None] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)

    def sent(self, number: int, tick: int) -> None:  # noqa: ARG002
        """See `Copies.sent`."""
        self.flying[number] = None

    def poll(self, tick: int) -> list[int]:  # noqa: ARG002
        """See `Copies.poll`."""
        ended, self.ended = self.ended, []
        return ended

    def end(self, number: int) -> None:
        """The copy is over; the next poll says so."""
        del self.flying[number]
        self.ended.append(number)
