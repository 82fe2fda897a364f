"""What an engine has of each component: its pools, its host tier, its tensors, and what of it is promised.

Owns one `Stock` for each kind of KV. Decides nothing. The first stock is that of the component which carries the
tree; the rules reach the others by the component protocol alone, and name none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stagehold.cache.components.base import Component, Span
from stagehold.cache.components.full import SPINE
from stagehold.cache.components.splice import restorable, staged
from stagehold.cache.host import HostTier
from stagehold.cache.keys import Chain, RankCoordinates, object_name
from stagehold.cache.pools import Pool, StagingPool
from stagehold.cache.residency import Residency, Shelf
from stagehold.specs.component import ComponentConfig
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import HostMode


def for_writes(size: int, loads: int) -> int:
    """Of `size` pages of staging, those that writes may have while loads have so many: one at least.

    >>> [for_writes(40, loads) for loads in (0, 20, 40)]
    [36, 16, 8]
    """
    return max(1, size // 5, size - loads - size // 10)


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The pools of one component now, in pages (or checkpoints)."""

    device_pages: int
    device_used: int
    device_reserved: int
    staging_pages: int
    staging_used: int
    staging_kept: int
    staging_written: int


class Stock:
    """One component: its pools and host tier, device slots `reserved` for requests, staging `written` from."""

    def __init__(self, name: str, device_pages: int, staging_pages: int, *, tier: bool, spare: float) -> None:
        self.name = name
        self.index = 0  # its place among the components
        self.tag = b"" if name == SPINE else name.encode()
        self.device = Pool(device_pages, "device" if name == SPINE else name)
        # With the tier off nobody takes its page, so nobody gives one to be kept.
        self.staging = StagingPool(max(1, staging_pages), "staging" if name == SPINE else f"{name} staging")
        self.host = HostTier(self.staging, tier=tier, spare=spare)
        self.size = staging_pages
        self.reserved = 0
        self.written = 0

    @property
    def write_share(self) -> int:
        """Staging that writes may have however busy loads are: a fifth, at least one page."""
        return for_writes(self.size, loads=self.size)

    @property
    def piece(self) -> int:
        """Pages of the largest write: two of them fit in the share, so that one is put while the next is copied."""
        return max(1, self.write_share // 2)

    def key(self, page_key: bytes) -> bytes:
        """What the page of this component is called by beliefs and the host tier; unique over all components."""
        return page_key + self.tag

    def keys(self, chain: Chain, start: int, last: int) -> list[bytes]:
        """Keys of pages [start, last)."""
        return [chain.page_key(page) + self.tag for page in range(start, last)]

    def names(self, keys: Iterable[bytes], at: RankCoordinates) -> list[bytes]:
        """Object names in the store of the pages that `keys` are for."""
        size = -len(self.tag) or None
        return [object_name(key[:size], component=self.name, at=at) for key in keys]

    def staging_free(self) -> int:
        """Staging pages that can be had now, counting what the host tier would give up."""
        return self.staging.free_count + self.host.reclaimable

    def hosts(self, chain: Chain, start: int, last: int) -> bool:
        """Whether every page of [start, last) is in the host tier."""
        return self.host.reach(chain, start, last, self.tag) == last

    def use(self) -> PoolUse:
        """What of its pools is in use."""
        return PoolUse(
            device_pages=self.device.size,
            device_used=self.device.size - self.device.free_count,
            device_reserved=self.reserved,
            staging_pages=self.size,
            staging_used=self.staging.used,
            staging_kept=len(self.host),
            staging_written=self.written,
        )


class Stocks:
    """All stocks of an engine, and the components beside the one that carries the tree as the arithmetic needs them."""

    def __init__(self, config: EngineConfig, parts: Sequence[Component]) -> None:
        tier = config.host_memory_mode is HostMode.CACHE
        spare = 0.0 if tier else config.page_cache_fraction
        self.spine = Stock(SPINE, config.device_pages, config.staging_pages, tier=tier, spare=spare)
        self.others = tuple(
            Stock(one.name, one.device_pages, one.staging_pages, tier=tier, spare=spare) for one in config.components
        )
        self.by_name = {stock.name: stock for stock in self}
        for index, stock in enumerate(self):
            stock.index = index
        self.configs: dict[str, ComponentConfig] = {one.name: one for one in config.components}
        self.parts = tuple(parts)  # bound to no tree: asked for arithmetic alone
        self.gates = tuple(part for part in self.parts if part.gates)
        self._part = {part.name: part for part in self.parts}

    def __iter__(self) -> Iterator[Stock]:
        yield self.spine
        yield from self.others

    def __deepcopy__(self, memo: dict[int, Any]) -> Stocks:
        from copy import deepcopy

        twin = memo[id(self)] = object.__new__(Stocks)
        for name in ("spine", "others", "by_name"):
            setattr(twin, name, deepcopy(getattr(self, name), memo))
        twin.configs, twin.parts, twin.gates, twin._part = self.configs, self.parts, self.gates, self._part
        return twin

    def watch(self, book: Residency) -> None:
        """Let the book of residency hear what every host tier keeps and gives up."""
        for stock in self:
            others = [other.name for other in self.others] if stock is self.spine else []
            stock.host.watch = Shelf(book, stock.name, stock.tag, others)

    def flush_hosts(self) -> None:
        """Nothing stays in host memory."""
        for stock in self:
            stock.host.flush()

    def part(self, name: str) -> Component:
        """The arithmetic of a component beside the one that carries the tree."""
        return self._part[name]

    def brought(self, start: int, last: int, names: Iterable[str]) -> dict[str, Span]:
        """What a hold of [start, last) brings of each named component."""
        found = {}
        for name in names:
            span = staged(self._part[name], start, last)
            if span is not None:
                found[name] = span
        return found

    def hosted(self, chain: Chain, start: int, live: int, limit: int) -> int:
        """The longest end behind `start` of which the host tiers have all that is not live; else `start`."""
        covered = self.spine.host.reach(chain, live, limit)
        if not self.gates:
            return covered

        def has(name: str, page: int) -> bool:
            stock = self.by_name[name]
            return stock.host.has(stock.key(chain.page_key(page)))

        return restorable(self.gates, start, covered, has)
