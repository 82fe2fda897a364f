"""The host tier: staged pages that outlive their hold or write, found by page key.

In `cache` mode staging is a tier, and verified pages pass to it when their hold or write ends; in `buffer_only`
its capacity is 0 and no page stays. A page that somebody else also owns (a hold over host-resident pages, a put
under way) cannot be reclaimed; otherwise the least recently used page goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from stagehold.cache.keys import Chain
from stagehold.cache.pools import StagingPool


class HostTier:
    """At most `capacity` pages of `staging`, each with one reference of the tier's own."""

    def __init__(self, staging: StagingPool, capacity: int) -> None:
        self._staging = staging
        self._capacity = capacity
        self._pages: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def has(self, key: bytes) -> bool:
        """Whether the page of this key is host-resident; renews nothing."""
        return key in self._pages

    def reach(self, chain: Chain, start: int, end: int, tag: bytes = b"") -> int:
        """The end of the run of host-resident pages that begins at page `start`; renews nothing.

        `tag` is what the keys of a component have behind the page key.
        """
        while start < end and chain.page_key(start) + tag in self._pages:
            start += 1
        return start

    def borrow(self, keys: Sequence[bytes]) -> list[int]:
        """The staging pages of `keys` (all resident), with one more reference each; counts as use."""
        pages = [self._pages[key] for key in keys]
        for key in keys:
            self._pages.move_to_end(key)
        self._staging.share(pages)
        return pages

    def keep(self, keys: Sequence[bytes], pages: Sequence[int]) -> None:
        """Take over the caller's references; a page that is resident already, or finds no room, is given back."""
        for key, page in zip(keys, pages, strict=True):
            if key in self._pages or self._capacity == 0:
                self._staging.free([page])
                continue
            self._pages[key] = page
            self._pages.move_to_end(key)
        self._shrink()

    def _shrink(self) -> None:
        while len(self._pages) > self._capacity:
            _, page = self._pages.popitem(last=False)
            self._staging.free([page])

    @property
    def reclaimable(self) -> int:
        """Pages that nobody but the tier owns. A page with a second owner is always one that the tier lent."""
        return len(self._pages) - self._staging.shared

    def reclaim(self, n: int) -> None:
        """Give back least recently used pages until staging has `n` free, or no reclaimable page is left."""
        for key in list(self._pages):
            if self._staging.free_count >= n:
                return
            if self._staging.references(self._pages[key]) == 1:
                self._staging.free([self._pages.pop(key)])

    def pages(self) -> list[int]:
        """The staging pages of the tier, least recently used first."""
        return list(self._pages.values())

    def flush(self) -> None:
        """Give every page back."""
        self._staging.free(list(self._pages.values()))
        self._pages.clear()
