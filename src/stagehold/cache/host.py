"""The host tier and the page cache: staged pages that outlive their hold or write, found by page key.

In `cache` mode staging is a tier: verified pages pass to it when their hold or write ends, and stay until room is
wanted. In `buffer_only` the same shelf is a cache in spare staging: what was read from the store is kept, what was
written to it only until something that was read wants the place, unless it is read first. A page that somebody else
also owns (a hold over resident pages, a put under way) cannot be reclaimed; otherwise the least recently used page
goes first, and of a prefix its end before its head, since the end is of no use without it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from stagehold.cache.keys import Chain
from stagehold.cache.pools import StagingPool
from stagehold.cache.residency import Shelf
from stagehold.cache.tenants import Tenancy

Ends = tuple[OrderedDict[bytes, None], OrderedDict[bytes, None]]
"""Keys of pages with nothing resident behind them, the first to go first: those that pass by, then the others."""


@dataclass(slots=True)
class _Page:
    page: int
    before: bytes  # key of the page in front of it, resident or not
    used: int
    around: bool  # written and not read since: it passes by


class HostTier:
    """Pages of `staging`, each with one reference of the tier's own.

    With a `spare` share it is a cache: at most this share of what nobody else owns. Without one it is a tier that
    may fill all of staging; with neither it keeps nothing.
    """

    def __init__(self, staging: StagingPool, *, tier: bool, spare: float = 0.0) -> None:
        self._staging = staging
        self._tier = tier
        self._spare = spare
        self._pages: dict[bytes, _Page] = {}
        self._after: Counter[bytes] = Counter()  # key -> resident pages right behind it
        self._ends: Ends = (OrderedDict(), OrderedDict())
        self._lanes: dict[bytes, Ends] = {}  # the same of each tenant, in place of it where tenants have quotas
        self._uses = 0
        self.watch: Shelf | None = None  # hears of every page that comes and goes, in checked mode

    def __len__(self) -> int:
        return len(self._pages)

    def has(self, key: bytes) -> bool:
        """Whether the page of this key is resident; renews nothing."""
        return key in self._pages

    def reach(self, chain: Chain, start: int, end: int, tag: bytes = b"") -> int:
        """The end of the run of resident pages that begins at page `start`; renews nothing.

        `tag` is what the keys of a component have behind the page key.
        """
        if not self._pages:
            return start
        while start < end and chain.page_key(start) + tag in self._pages:
            start += 1
        return start

    def borrow(self, keys: Sequence[bytes]) -> list[int]:
        """The staging pages of `keys` (all resident), with one more reference each; counts as use."""
        pages = [self._pages[key].page for key in keys]
        self._staging.share(pages)
        for key in reversed(keys):
            self._use(key)
        return pages

    def renew(self, keys: Sequence[bytes]) -> None:
        """Count a use of those of `keys` that are resident; of one path, the first of them goes last."""
        for key in reversed(keys):
            if key in self._pages:
                self._use(key)

    def _ends_at(self, page: int) -> Ends:
        """The ends among which this page is one, or would be: a path has one tenant."""
        tenancy = self._staging.tenancy
        return self._ends if tenancy is None else self._lanes[tenancy.of(page)]

    def _use(self, key: bytes) -> None:
        one = self._pages[key]
        ends = self._ends_at(one.page)
        self._uses += 1
        one.used = self._uses
        if one.around:
            ends[False].pop(key, None)
            one.around = False
        if not self._after[key]:
            ends[True][key] = None
            ends[True].move_to_end(key)

    def keep(self, keys: Sequence[bytes], pages: Sequence[int], *, read: bool = True, before: bytes = b"") -> None:
        """Take over the caller's references; a page that is resident already, or finds no room, is given back.

        The keys follow each other on one path, behind the page of key `before`. `read`: they came from the store, or
        were asked for; a cache lets others pass by.
        """
        if not (self._tier or self._spare):
            self._staging.free(list(pages))
            return
        tenancy = self._staging.tenancy
        tenant = tenancy.of(pages[0]) if tenancy is not None and pages else b""
        for key, page in zip(keys, pages, strict=True):
            if key in self._pages:
                self._staging.free([page])
                if read:
                    self._use(key)
            else:
                self._add(key, _Page(page, before, 0, around=not (read or self._tier)))
            before = key
        if not self._tier:
            self._shrink(tenant)

    def _add(self, key: bytes, one: _Page) -> None:
        if self.watch is not None:
            self.watch.kept(key)
        self._uses += 1
        one.used = self._uses
        self._pages[key] = one
        self._after[one.before] += 1
        tenancy = self._staging.tenancy
        if tenancy is not None:
            tenancy.keeps(one.page, self._staging.references(one.page))
            self._lanes.setdefault(tenancy.of(one.page), (OrderedDict(), OrderedDict()))
        all_ends = self._ends_at(one.page)
        for ends in all_ends:
            ends.pop(one.before, None)
        if not self._after[key]:
            all_ends[not one.around][key] = None

    def _shrink(self, tenant: bytes) -> None:
        """Back to the share of what nobody else owns."""
        over = len(self) - int(self._spare * (self._staging.free_count + len(self)))
        for key in self._cold(tenant, self._spare) if over > 0 else ():
            self._drop(key)
            over -= 1
            if over <= 0:
                return

    def _drop(self, key: bytes) -> None:
        """Give the page back. The one in front of it is an end now: it goes next, unless it was used since."""
        if self.watch is not None:
            self.watch.dropped(key)
        one = self._pages.pop(key)
        all_ends = self._ends_at(one.page)
        for ends in all_ends:
            ends.pop(key, None)
        self._after[one.before] -= 1
        if not self._after[one.before]:
            del self._after[one.before]
            front = self._pages.get(one.before)
            if front is not None:
                ends = all_ends[not front.around]
                ends[one.before] = None
                ends.move_to_end(one.before, last=front.used > one.used)
        tenancy = self._staging.tenancy
        if tenancy is not None:
            tenancy.lets_go(one.page, self._staging.references(one.page))
            if not any(all_ends):
                del self._lanes[tenancy.of(one.page)]
        self._staging.free([one.page])

    def _cold(self, tenant: bytes, part: float = 1.0) -> Iterator[bytes]:
        """Keys of pages with no owner but the tier, the first to go first; each is dropped before the next is wanted.

        Ends first; what is left then lies in front of a page that is lent. Where tenants have quotas: of those who
        have more than they are guaranteed, then of the `tenant` itself that needs the room. A cache that is a `part` of
        what is spare has room for that part of what each is guaranteed, too: who has less takes it from who has more.
        """
        tenancy = self._staging.tenancy
        if tenancy is None:
            yield from self._cold_ends(self._ends)
            yield from self._alone(lambda _: True)
            return
        yield from self._beyond(tenancy, 1.0, dict.fromkeys(self._lanes))
        if part < 1:
            yield from self._beyond(tenancy, part, (tenant,))
            yield from self._beyond(tenancy, part, dict.fromkeys(self._lanes))
        if tenant in self._lanes:
            yield from self._cold_ends(self._lanes[tenant])
            yield from self._alone(lambda page: tenancy.of(page) == tenant)

    def _beyond(self, tenancy: Tenancy, part: float, whose: Collection[bytes]) -> Iterator[bytes]:
        """Pages of tenants that have more than a part of what they are guaranteed, as long as they have."""
        yield from self._ends_beyond(tenancy, part, whose)
        if any(tenancy.spare(one, part) for one in whose):
            yield from self._alone(lambda page: tenancy.of(page) in whose and tenancy.spare(tenancy.of(page), part) > 0)

    def _ends_beyond(self, tenancy: Tenancy, part: float, whose: Collection[bytes]) -> Iterator[bytes]:
        lanes = {one: self._lanes[one] for one in whose if one in self._lanes and tenancy.spare(one, part)}
        rows = {one: self._cold_ends(ends) for one, ends in lanes.items()}
        first = {one: next(row, None) for one, row in rows.items()}
        while True:
            left = [(self._pages[key].around, -self._pages[key].used, one, key)
                    for one, key in first.items() if key is not None]  # fmt: skip
            if not left:
                return
            *_, one, key = max(left)
            yield key
            first[one] = next(rows[one], None) if tenancy.spare(one, part) else None

    def _cold_ends(self, all_ends: Ends) -> Iterator[bytes]:
        for ends in all_ends:
            lent = 0
            while len(ends) > lent:
                key = next(iter(ends))
                if self._staging.references(self._pages[key].page) == 1:
                    yield key
                else:  # in use just now, so it belongs to the other end
                    ends.move_to_end(key)
                    lent += 1

    def _alone(self, may_go: Callable[[int], bool]) -> Iterator[bytes]:
        """Wherever they lie, in order of their coming."""
        for key in list(self._pages):
            page = self._pages[key].page
            if self._staging.references(page) == 1 and may_go(page):
                yield key

    @property
    def reclaimable(self) -> int:
        """Pages that nobody but the tier owns. A page with a second owner is always one that the tier lent."""
        return len(self._pages) - self._staging.shared

    def idle(self, keys: Sequence[bytes]) -> int:
        """How many of the pages of `keys` (all resident) nobody but the tier owns."""
        return sum(self._staging.references(self._pages[key].page) == 1 for key in keys)

    def reclaim(self, n: int, tenant: bytes = b"") -> None:
        """Give back the pages that go first until staging has `n` free, or no reclaimable page is left.

        Where tenants have quotas, none but the `tenant` that wants them is left with less than it is guaranteed.
        """
        if self._staging.free_count >= n:
            return
        for key in self._cold(tenant):
            self._drop(key)
            if self._staging.free_count >= n:
                return

    def keys(self) -> list[bytes]:
        """Keys of the resident pages: the ends, the first to go first, then the others in order of their coming."""
        every = [*self._lanes.values(), self._ends]
        ends = [key for around in (False, True) for ends in every for key in ends[around]]
        return list(dict.fromkeys((*ends, *self._pages)))

    def pages(self) -> list[int]:
        """The staging pages."""
        return [one.page for one in self._pages.values()]

    def flush(self) -> None:
        """Give every page back."""
        if self.watch is not None:
            for key in self._pages:
                self.watch.dropped(key)
        tenancy = self._staging.tenancy
        if tenancy is not None:
            for page in self.pages():
                tenancy.lets_go(page, self._staging.references(page))
        self._staging.free(self.pages())
        self._pages.clear()
        self._after.clear()
        self._lanes.clear()
        for ends in self._ends:
            ends.clear()
