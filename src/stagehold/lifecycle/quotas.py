"""Quotas of tenants: who counts as one, what each is guaranteed, and what must be left for the others.

A tenant is a namespace, from its first request on until nothing of it is left here: no request, no write, no page. One
that keeps pages in host memory and does nothing else is one for `belief_limit` ticks; then its pages are anybody's.
With the share at 0 nobody is ever entered, nothing is counted, and every question is answered with nothing.

The rules ask here where they ask for room, and refuse with the outcomes that they have. What was in use when a tenant
came is not taken away: it waits for that to end, as what is parked, queued or in flight does within its limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from stagehold.cache.tenants import Quota, Tenancy
from stagehold.lifecycle.stocks import Stock, Stocks, for_writes
from stagehold.specs.config import EngineConfig

LOOKED_AT_A_TICK = 64
"""Tenants of which it is asked whether anything is left: all where they are few, and a bound where each user is one."""

RESOURCES = ("staging", "pin", "load", "lookup", "backlog")
"""What a tenant may be refused for the sake of others."""


class Quotas:
    """The quotas of one engine. `on` is whether there are any.

    `pins`, `lookups` and `backlog` are bounds, and so are the pages of each component's `staging` that holds and writes
    have; `writes` is what of those writes have, and `loads` the pages that holds were launched for. `device` are pages
    of the tree, and no bound: they only say whose go first.
    """

    def __init__(self, config: EngineConfig, stocks: Stocks) -> None:
        self.on = config.tenant_share > 0
        self._keep_ticks = config.limits.belief_limit
        self.tenants: dict[bytes, int] = {}  # the last tick in which it was seen to have more than pages, by namespace
        self._requests: dict[bytes, int] = {}
        self.pins = self._of(config, config.pin_cap)
        self.lookups = self._of(config, config.query_limit)
        self.backlog = self._of(config, config.backlog_pages)
        self.loads = self._of(config, config.load_limit_pages)
        windows = {one.name: one.window_pages(config.page_size) for one in config.components}
        self.staging = [self._of(config, stock.size, windows.get(stock.name, 0)) for stock in stocks]
        self.writes = [self._of(config, stock.size) for stock in stocks]
        self.device = self._of(config, config.device_pages)
        self.refused = dict.fromkeys(RESOURCES, 0)  # times, where there was room, and it was for others
        self._tenancies: list[Tenancy] = []
        for stock in stocks if self.on else ():
            stock.staging.tenancy = Tenancy(self.staging[stock.index], self.tenants)
            self._tenancies.append(stock.staging.tenancy)

    def _of(self, config: EngineConfig, size: int, least: int = 1) -> Quota:
        return Quota(size, config.tenant_share, self.tenants, least)

    @property
    def bounds(self) -> Iterator[tuple[str, Quota]]:
        """What no tenants together may have more of, by name."""
        yield from (("pins", self.pins), ("lookups", self.lookups), ("backlog", self.backlog))
        for quota in self.staging:
            yield "staging", quota

    # Who counts

    def arrived(self, tenant: bytes, tick: int) -> bool:
        """A request of the tenant has arrived; whether that makes it one, so that others may have more or less now."""
        if not self.on:
            return False
        self._requests[tenant] = self._requests.get(tenant, 0) + 1
        return self.enter(tenant, tick)

    def enter(self, tenant: bytes, tick: int) -> bool:
        """It is one from now on: with write-back, pages of one that had left already may be written as they leave."""
        if not self.on or tenant in self.tenants:
            return False
        self.tenants[tenant] = tick
        self._settle(tenant)
        return True

    def left(self, tenant: bytes) -> None:
        """A request of the tenant has gone."""
        if self.on:
            self._requests[tenant] -= 1
            if not self._requests[tenant]:
                del self._requests[tenant]

    def turn(self, tick: int) -> bool:
        """Once a tick, a few of them: whether a tenant counts no more, so that there is more for the others."""
        before = len(self.tenants)
        for tenant, seen in list(islice(self.tenants.items(), LOOKED_AT_A_TICK)):
            del self.tenants[tenant]
            if tenant in self._requests or self._has_anything(tenant):
                self.tenants[tenant] = tick
            elif tick - seen <= self._keep_ticks and any(tenant in one.owned for one in self._tenancies):
                self.tenants[tenant] = seen
            else:
                self._settle(tenant)
        return len(self.tenants) < before

    def _has_anything(self, tenant: bytes) -> bool:
        if tenant in self.backlog.used or tenant in self.pins.used:
            return True
        return any(tenant in quota.used for quota in self.staging)

    def _settle(self, tenant: bytes) -> None:
        for quota in (self.pins, self.lookups, self.backlog, self.loads, self.device, *self.staging, *self.writes):
            quota.settle(tenant)

    # What is counted here because nobody else counts it by tenant

    def count(self, quota: Quota, tenant: bytes, units: int) -> None:
        """The tenant has so many units more, or fewer."""
        if self.on and units:
            quota.add(tenant, units)

    def refuse(self, resource: str, *, fits_alone: bool) -> None:
        """One of RESOURCES was refused; that counts where there would have been room with no other tenant around."""
        if self.on and fits_alone:
            self.refused[resource] += 1

    # What may be had

    def may_write(self, stock: Stock, tenant: bytes, pages: int, allowance: int) -> bool:
        """Whether a write may have `pages` of what writes may have now; a tenant's first one always may.

        Loads come first in all of staging, and so they do in what one tenant is guaranteed: there its writes may have
        the same part, whatever others load and write. Where staging has no room for it is another question.
        """
        if self.on:
            own, mine = self.staging[stock.index], self.writes[stock.index].used.get(tenant, 0)
            loads = own.used.get(tenant, 0) - mine
            if not mine or mine + pages <= for_writes(own.guaranteed, loads):
                return True
        return stock.written + pages <= allowance

    def piece(self, stock: Stock) -> int:
        """Pages of the largest write of one tenant, which fits in what it is guaranteed, if it is guaranteed any."""
        guaranteed = (self.staging[stock.index].guaranteed, self.backlog.guaranteed) if self.on else ()
        return min([stock.piece, *filter(None, guaranteed)])
