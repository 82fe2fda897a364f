"""The host tier and the page cache: staged pages that outlive their hold or write, found by page key.

In `cache` mode staging is a tier: verified pages pass to it when their hold or write ends, and stay until room is
wanted. In `buffer_only` the same shelf is a cache in spare staging: what was read from the store is kept, what was
written to it only until something that was read wants the place, unless it is read first. A page that somebody else
also owns (a hold over resident pages, a put under way) cannot be reclaimed; otherwise the least recently used page
goes first, and of one prefix its end before its head, since the end is of no use without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from stagehold.cache.keys import Chain
from stagehold.cache.pools import StagingPool

Shelf = OrderedDict[bytes, int]
"""Page key to staging page, the first to go first."""


class HostTier:
    """Pages of `staging`, each with one reference of the tier's own.

    With a `spare` share it is a cache: at most this share of what nobody else owns. Without one it is a tier that
    may fill all of staging; with neither it keeps nothing.
    """

    def __init__(self, staging: StagingPool, *, tier: bool, spare: float = 0.0) -> None:
        self._staging = staging
        self._tier = tier
        self._spare = spare
        self._pages: Shelf = OrderedDict()
        self._around: Shelf = OrderedDict()  # written and not read since: they pass by, and go first

    def __len__(self) -> int:
        return len(self._pages) + len(self._around)

    def has(self, key: bytes) -> bool:
        """Whether the page of this key is resident; renews nothing."""
        return key in self._pages or key in self._around

    def reach(self, chain: Chain, start: int, end: int, tag: bytes = b"") -> int:
        """The end of the run of resident pages that begins at page `start`; renews nothing.

        `tag` is what the keys of a component have behind the page key.
        """
        if not len(self):
            return start
        while start < end and self.has(chain.page_key(start) + tag):
            start += 1
        return start

    def borrow(self, keys: Sequence[bytes]) -> list[int]:
        """The staging pages of `keys` (all resident), with one more reference each; counts as use."""
        pages = [self._at(key) for key in keys]
        self._staging.share(pages)
        for key, page in zip(reversed(keys), reversed(pages), strict=True):
            self._around.pop(key, None)
            self._pages[key] = page
            self._pages.move_to_end(key)
        return pages

    def _at(self, key: bytes) -> int:
        page = self._pages.get(key)
        return self._around[key] if page is None else page

    def keep(self, keys: Sequence[bytes], pages: Sequence[int], *, read: bool = True) -> None:
        """Take over the caller's references; a page that is resident already, or finds no room, is given back.

        `read`: they came from the store, or were asked for; a cache lets others pass by.
        """
        shelf = self._pages if read or self._tier else self._around
        for key, page in zip(reversed(keys), reversed(pages), strict=True):
            if read and key in self._around:
                self._pages[key] = self._around.pop(key)
            if self.has(key) or not (self._tier or self._spare):
                self._staging.free([page])
            else:
                shelf[key] = page
        if not self._tier:
            self._shrink()

    def _shrink(self) -> None:
        """Back to the share of what nobody else owns."""
        most = int(self._spare * (self._staging.free_count + len(self)))
        over = len(self) - most
        for shelf, key in self._cold():
            if over <= 0:
                return
            self._staging.free([shelf.pop(key)])
            over -= 1

    def _cold(self) -> Iterator[tuple[Shelf, bytes]]:
        """Pages with no owner but the tier, the first to go first; each may be taken off before the next is asked for.

        Lent ones were used just now, so they stand last: one at the front is put where it belongs.
        """
        for shelf in (self._around, self._pages):
            for _ in range(len(shelf)):
                key = next(iter(shelf))
                if self._staging.references(shelf[key]) == 1:
                    yield shelf, key
                else:
                    shelf.move_to_end(key)

    @property
    def reclaimable(self) -> int:
        """Pages that nobody but the tier owns. A page with a second owner is always one that the tier lent."""
        return len(self) - self._staging.shared

    def reclaim(self, n: int) -> None:
        """Give back the pages that go first until staging has `n` free, or no reclaimable page is left."""
        if self._staging.free_count >= n:
            return
        for shelf, key in self._cold():
            self._staging.free([shelf.pop(key)])
            if self._staging.free_count >= n:
                return

    def keys(self) -> list[bytes]:
        """Keys of the resident pages, the first to go first."""
        return [*self._around, *self._pages]

    def pages(self) -> list[int]:
        """The staging pages, the first to go first."""
        return [*self._around.values(), *self._pages.values()]

    def flush(self) -> None:
        """Give every page back."""
        self._staging.free(self.pages())
        self._around.clear()
        self._pages.clear()
