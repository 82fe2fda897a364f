"""What an engine is told at start, and the limits that follow from it, each with its arithmetic.

Data and relations only. A combination that cannot work is refused here, with the numbers that say why.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stagehold.specs.component import ComponentConfig
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import DivergencePolicy, Eviction, FetchGate, HostMode, PrefetchPolicy, WritePolicy

MOST_COMPONENTS_BESIDE = 3
"""Components beside full attention that the exchange of ranks has room for: windows, checkpoints, drafts."""


def part_of(share: float, size: int) -> int:
    """Whole units of a share of `size`: 1/49 of 49 is one, though it comes out a little less in floating point.

    >>> part_of(1 / 49, 49), part_of(0.29, 100), part_of(0.2, 14)
    (1, 29, 2)
    """
    return int(round(share * size, 6))


class EngineConfig(BaseModel):
    """Sizes are pages of `page_size` tokens unless the name says otherwise.

    pydantic's ValidationError, a ValueError, for an unknown name and for what cannot work, with the arithmetic:

    >>> EngineConfig(device_pages=128, staging_pages=256, largest_request_tokens=4096).pin_cap
    64
    >>> EngineConfig(device_pages=128, staging_pages=256, largest_request_tokens=9000)
    Traceback (most recent call last):
        ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for EngineConfig
      Value error, largest_request_tokens=9000 fills 141 pages of 64, but device_pages=128: no such request could ever run
    ...
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_size: int = Field(default=64, ge=1, description="tokens in a page: the unit of keys, copies and stores")
    device_pages: int = Field(ge=1, description="slots of the FULL device pool")
    staging_pages: int = Field(ge=0, description="pages of the host buffer; 0 switches the tier off, store and all")
    largest_request_tokens: int = Field(ge=1, description="prompt and answer of the largest admissible request")
    host_memory_mode: HostMode = Field(default=HostMode.CACHE, description="what staging is")
    write_policy: WritePolicy = Field(
        default=WritePolicy.WRITE_THROUGH, description="when pages are offered to the store"
    )
    prefetch_policy: PrefetchPolicy = Field(
        default=PrefetchPolicy.TIMEOUT, description="how long the store may hold a request back"
    )
    divergence_policy: DivergencePolicy = Field(
        default=DivergencePolicy.STOP, description="what ranks do that did not record the same"
    )
    fetch_gate: FetchGate = Field(
        default=FetchGate.OFF, description="whether the store is left alone while computing is faster"
    )
    prefill_tokens_per_tick: int | None = Field(
        default=None, ge=1, description="fetch_gate=auto: what a waiting tick is worth; none: as measured in busy ones"
    )
    eviction: Eviction = Field(default=Eviction.LRU, description="which pages leave the device first")
    prefetch_threshold_tokens: int = Field(default=256, ge=1, description="fewer missing tokens are computed")
    pin_fraction: float = Field(default=0.5, ge=0.0, le=1.0, description="of the device pool, for anchors of fetches")
    load_limit_fraction: float | None = Field(
        default=None, gt=0.0, le=1.0, description="of staging, for fetches; 0.5, in buffer_only 0.9"
    )
    write_backlog_tokens: int | None = Field(
        default=None, ge=1, description="most that pending writes hold; twice the device pool"
    )
    page_cache_fraction: float = Field(
        default=0.5, ge=0.0, le=1.0, description="buffer_only: of spare staging, for pages that were read lately"
    )
    tenant_share: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="of staging, pins, lookups and pending writes, for each tenant; 0: none",
    )
    belief_capacity: int = Field(default=524_288, ge=1, description="page keys that are remembered as stored")
    query_limit: int = Field(default=64, ge=1, description="lookups in flight; more are declined")
    operation_window: int = Field(default=256, ge=8, description="operations that one exchange has room for")
    parts: int = Field(default=0, ge=0, description="layers x (K, V) of the attached tensors; 0 attaches none")
    page_part_bytes: int = Field(default=0, ge=0, description="bytes of one page in one part")
    kv_device: str = Field(default="cpu", description="where the attached tensors lie: cpu, cuda, cuda:1 or auto")
    components: tuple[ComponentConfig, ...] = Field(default=(), description="kinds of KV beside full attention")
    chunk_tokens: int | None = Field(default=None, ge=1, description="most tokens that one extend asks for")
    limits: Limits = Field(default=Limits(), description="every bound of a wait, in ticks")

    @property
    def tier(self) -> bool:
        """Whether there is a tier below the device pool: without staging no store can be used, and a tick does nothing."""
        return self.staging_pages > 0

    @property
    def largest_request_pages(self) -> int:
        """Pages that the largest admissible request can fill: ceil(tokens / page_size)."""
        return -(-self.largest_request_tokens // self.page_size)

    @property
    def pin_cap(self) -> int:
        """max(0, min(floor(fraction x pool), pool - largest request)), in pages; 0 switches pins off."""
        return max(0, min(int(self.pin_fraction * self.device_pages), self.device_pages - self.largest_request_pages))

    @property
    def threshold_pages(self) -> int:
        """The prefetch threshold in whole pages: at least one, and in buffer_only at least each full window."""
        windows = [part.window_pages(self.page_size) for part in self.components]
        least = max(windows, default=1) if self.host_memory_mode is HostMode.BUFFER_ONLY else 1
        return max(1, least, -(-self.prefetch_threshold_tokens // self.page_size))

    @property
    def chunk_pages(self) -> int:
        """Pages that one extend can fill anew; without `chunk_tokens`, those of the largest request."""
        chunk = self.largest_request_tokens if self.chunk_tokens is None else self.chunk_tokens
        return -(-chunk // self.page_size)

    @property
    def load_limit_pages(self) -> int:
        """Pages of staging that holds may be launched for: `load_limit_fraction` of staging, at least one."""
        default = 0.9 if self.host_memory_mode is HostMode.BUFFER_ONLY else 0.5
        fraction = default if self.load_limit_fraction is None else self.load_limit_fraction
        return max(1, int(fraction * self.staging_pages))

    @property
    def backlog_pages(self) -> int:
        """Pages of writes that may be pending: twice the device pool unless set."""
        if self.write_backlog_tokens is None:
            return 2 * self.device_pages
        return max(1, self.write_backlog_tokens // self.page_size)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all parts; 0 when no bytes are attached."""
        return self.parts * self.page_part_bytes

    @property
    def largest_page_bytes(self) -> int:
        """Bytes of the largest page of any component: what a store must be opened for."""
        return max(self.page_bytes, *(one.parts * one.page_part_bytes for one in self.components), 0)

    @property
    def wait_complete_ticks(self) -> int:
        """The wait budget of `wait_complete`: the sum of the limits that bound the same states."""
        limits = self.limits
        return limits.lookup_limit + limits.park_limit + limits.fetch_limit

    @model_validator(mode="after")
    def _refuse_what_cannot_work(self) -> Self:
        if self.largest_request_pages > self.device_pages:
            raise ValueError(
                f"largest_request_tokens={self.largest_request_tokens} fills {self.largest_request_pages} pages of "
                f"{self.page_size}, but device_pages={self.device_pages}: no such request could ever run"
            )
        if self.pin_fraction > 0 and self.pin_cap == 0:
            raise ValueError(
                f"the pin cap derives to zero: min({self.pin_fraction} x {self.device_pages}, {self.device_pages} - "
                f"{self.largest_request_pages}) = 0 pages; enlarge device_pages, lower largest_request_tokens, or set "
                "pin_fraction=0 to switch pins off on purpose"
            )
        if self.prefill_tokens_per_tick is not None and self.fetch_gate is FetchGate.OFF:
            raise ValueError(
                f"prefill_tokens_per_tick={self.prefill_tokens_per_tick} with fetch_gate=off would do nothing: set "
                "fetch_gate=auto, or leave it out"
            )
        if (self.parts == 0) != (self.page_part_bytes == 0):
            raise ValueError(
                f"parts={self.parts} and page_part_bytes={self.page_part_bytes}: set both to attach tensors, or neither"
            )
        if self.write_policy is WritePolicy.WRITE_BACK and self.host_memory_mode is HostMode.BUFFER_ONLY:
            raise ValueError(
                "write_policy=write_back with host_memory_mode=buffer_only: pages that leave the device need a host "
                "tier to wait in; set host_memory_mode=cache, or write_policy=write_through"
            )
        self._refuse_components()
        if self.tenant_share > 0:
            self._refuse_share()
        return self

    def _refuse_share(self) -> None:
        if not self.tier:
            raise ValueError(
                f"tenant_share={self.tenant_share} with staging_pages=0 would do nothing: there is no tier to share; "
                "set staging_pages, or leave the share out"
            )
        for name, size in (("pages of the pin cap", self.pin_cap), ("lookups (query_limit)", self.query_limit),
                           ("pages of the write backlog", self.backlog_pages)):  # fmt: skip
            if size and not part_of(self.tenant_share, size):
                raise ValueError(
                    f"tenant_share={self.tenant_share} of {size} {name} is less than one: a tenant would be "
                    f"guaranteed none; the least share is 1/{size}"
                )
        self._refuse_share_of(
            "staging_pages", self.staging_pages, self.threshold_pages, "the smallest fetch (prefetch_threshold_tokens)"
        )
        for one in self.components:
            whole = max(1, one.window_pages(self.page_size))
            self._refuse_share_of(f"staging of component {one.name!r}", one.staging_pages, whole, "one hold")

    def _refuse_share_of(self, name: str, size: int, least: int, what: str) -> None:
        guaranteed = part_of(self.tenant_share, size)
        if guaranteed < least:
            too_few = f"no share of so few will do; enlarge {name}, or make {what} smaller"
            raise ValueError(
                f"tenant_share={self.tenant_share} of {name}={size} is {guaranteed} pages, but {what} needs {least}: "
                + (f"the least share is {least}/{size}" if least <= size else too_few)
            )

    def _refuse_components(self) -> None:
        names = [part.name for part in self.components]
        if len(set(names)) < len(names):
            raise ValueError(f"components: each name stands for one, got {names}")
        if len(names) > MOST_COMPONENTS_BESIDE:
            raise ValueError(f"components: at most {MOST_COMPONENTS_BESIDE} beside full attention, got {names}")
        for part in self.components:
            if (part.parts == 0) != (self.parts == 0):
                raise ValueError(f"component {part.name!r}: tensors are attached to every component, or to none")
            part.refuse_too_small(self.page_size, self.chunk_pages, tier=self.tier)
