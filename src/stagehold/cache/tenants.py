"""What each tenant has of one resource, what it is guaranteed, and what must be left for the others.

A tenant is a namespace, by its digest. Who counts as one is told from outside (`active`, one dict for all resources);
here is arithmetic only, kept up to date with every unit, so that a question costs the same however many tenants there
are. What is not a tenant's own, and nobody lacks, anybody may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stagehold.specs.config import part_of


class Quota:
    """One resource of `size` units. With n tenants each is guaranteed min(floor(fraction x size), floor(size / n)).

    Where that is less than the `least` that is of any use, nothing is guaranteed: what is kept for one would be of no
    use to it, and what is kept for all could leave too little to everybody.

    `used` has what each tenant has that it cannot be made to give back; `lack` what the tenants together still lack
    of what they are guaranteed. `total + lack` exceeds `size` only by what is `overdue`: what had been given away
    when another tenant came, and was not given back since.
    """

    __slots__ = ("_active", "fraction", "guaranteed", "lack", "least", "overdue", "size", "total", "used")

    def __init__(self, size: int, fraction: float, active: Mapping[bytes, int], least: int = 1) -> None:
        self.size = size
        self.least = least
        self.fraction = fraction
        self._active = active
        self.used: dict[bytes, int] = {}
        self.total = 0
        self.guaranteed = 0
        self.lack = 0
        self.overdue = 0

    def settle(self, tenant: bytes) -> None:
        """The tenant has become one, or is one no more: say anew what each is guaranteed."""
        active, before = self._active, self.guaranteed
        part = min(part_of(self.fraction, self.size), self.size // len(active)) if active else 0
        self.guaranteed = part if part >= self.least else 0
        if self.guaranteed == before:  # with many tenants the usual case, and it must not cost a look at all of them
            own = max(0, before - self.used.get(tenant, 0))
            self.lack += own if tenant in active else -own
        else:
            self.lack = sum(map(self._lacks, active))
        self.overdue = self.beyond

    @property
    def beyond(self) -> int:
        """Units that are lacking for what the tenants are guaranteed."""
        return max(0, self.total + self.lack - self.size)

    def add(self, tenant: bytes, units: int) -> None:
        """The tenant has so many more, or fewer."""
        self.lack -= self._lacks(tenant)
        self.used[tenant] = self.used.get(tenant, 0) + units
        if not self.used[tenant]:
            del self.used[tenant]
        self.total += units
        self.lack += self._lacks(tenant)
        if units < 0:
            self.overdue = min(self.overdue, self.beyond)

    def _lacks(self, tenant: bytes) -> int:
        return max(0, self.guaranteed - self.used.get(tenant, 0)) if tenant in self._active else 0

    def for_others(self, tenant: bytes) -> int:
        """Units that have to be left for the others."""
        return self.lack - self._lacks(tenant)

    def covers(self, tenant: bytes, units: int) -> bool:
        """Whether what the tenant is guaranteed has room for so many more."""
        return self.used.get(tenant, 0) + units <= self.guaranteed

    def spare(self, tenant: bytes) -> int:
        """What the tenant has beyond what it is guaranteed; all of it, where it is no tenant any more."""
        return max(0, self.used.get(tenant, 0) - (self.guaranteed if tenant in self._active else 0))

    def most(self, tenant: bytes) -> int:
        """What the tenant can have at best, while the others are what they are."""
        return self.size - self.guaranteed * (len(self._active) - (tenant in self._active))


class Tenancy:
    """Whose each staging page is. `held` counts pages with an owner beside the tier: those cannot be taken back.

    `owned` counts all pages of a tenant. One that owns no more than it is guaranteed is protected: only for itself
    are its pages taken back.
    """

    __slots__ = ("_active", "_kept", "_of", "held", "owned")

    def __init__(self, held: Quota, active: Mapping[bytes, int]) -> None:
        self.held = held
        self._active = active
        self.owned: dict[bytes, int] = {}
        self._of: dict[int, bytes] = {}  # of a free page, whose it was
        self._kept: dict[int, None] = {}  # pages that the tier has a reference to

    def of(self, page: int) -> bytes:
        """Whose page it is."""
        return self._of[page]

    def taken(self, pages: Sequence[int], tenant: bytes) -> None:
        """Free pages were given to the tenant."""
        for page in pages:
            self._of[page] = tenant
        self._count(tenant, len(pages))
        self.held.add(tenant, len(pages))

    def _count(self, tenant: bytes, pages: int) -> None:
        self.owned[tenant] = self.owned.get(tenant, 0) + pages
        if not self.owned[tenant]:
            del self.owned[tenant]

    def changed(self, page: int, before: int, after: int) -> None:
        """A page has another number of owners."""
        tenant, kept = self._of[page], int(page in self._kept)
        if (after > kept) != (before > kept):
            self.held.add(tenant, 1 if after > kept else -1)
        if not (before and after):
            self._count(tenant, 1 if after else -1)

    def keeps(self, page: int, owners: int) -> None:
        """One of the owners of a page is the tier from now on."""
        self._kept[page] = None
        if owners == 1:
            self.held.add(self._of[page], -1)

    def lets_go(self, page: int, owners: int) -> None:
        """The tier is about to give its reference up."""
        del self._kept[page]
        if owners == 1:
            self.held.add(self._of[page], 1)

    def spare(self, tenant: bytes, part: float = 1.0) -> int:
        """Pages of a tenant that anybody may be given: with no owner but the tier, and beyond what is guaranteed.

        A cache that keeps a `part` of what is spare keeps that part of what each is guaranteed, too.
        """
        owned = self.owned.get(tenant, 0)
        idle = owned - self.held.used.get(tenant, 0)
        return max(0, min(idle, owned - int(part * self.held.guaranteed))) if tenant in self._active else idle
