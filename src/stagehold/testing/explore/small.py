"""What a small world is: an engine's size, two prompts, what the store has, and how often each trouble may happen.

Data only. A search visits every situation that a world allows, so each trouble has a budget: how often it may happen
on one way. Time and completions have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stagehold.cache.keys import Chain, Namespace
from stagehold.specs.config import EngineConfig
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import HostMode, PrefetchPolicy

PAGE = 4
"""Tokens in a page."""

TIGHT = Limits(
    retry_interval_ticks=1, retry_interval_cap=1, retry_max_reissues=1, max_staged_admission_defers=1,
    lookup_limit=1, park_limit=2, fetch_limit=2, ready_limit=2,
    write_wait_limit=2, put_limit=1, tries=2,
    suspect_window=4, trip_results=64, open_limit=2, open_limit_cap=2, probe_limit=4, probe_trips=1,
    attach_limit=8, detach_limit=4, wait_base_ticks=1, wait_per_page_ticks=0.0, wait_cap_ticks=1,
)  # fmt: skip
"""The smallest limits under which every clock still runs for a while before it fires."""


class Budget(NamedTuple):
    """How often each trouble may happen on one way.

    `evict`: one page goes; `sibling`: another request publishes; `abort`, `retract`, `release`: of a request;
    `fault`: an operation ends badly on one rank; `lag`: it ends on one rank before the other, or a get brings a page
    and flies on; `late`: it flies on, on both, past one more poll; `short`: a commit is given less than was promised;
    `flush`, `detach`: of the engine; `lose`: a page leaves the store; `total`: all of these together.
    """

    evict: int = 1
    sibling: int = 1
    abort: int = 1
    retract: int = 0
    release: int = 0
    fault: int = 1
    lag: int = 1
    late: int = 2
    short: int = 0
    flush: int = 0
    detach: int = 0
    lose: int = 0
    total: int = 9

    def can(self, what: str) -> bool:
        """Whether this trouble may still happen."""
        return bool(self.total and getattr(self, what))

    def spend(self, what: str, units: int = 1) -> Budget:
        """The same with less left of one trouble."""
        return self._replace(**{what: getattr(self, what) - units, "total": self.total - units}) if units else self


USUAL = Budget()


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """One world. Prompts are lists of pages by number: equal numbers up to a page make equal prefixes.

    `stored` says how many pages of each prompt the store has at the beginning, `live` how many the device has. The
    first `arrived` requests are there then. With `believed` the engine takes what the store has for stored, so that it
    writes none of it. `siblings` are publications that may happen: pages of a prompt, and how many of them.
    """

    name: str
    about: str
    prompts: tuple[tuple[int, ...], ...] = ((1, 2, 3, 4), (1, 2, 5, 6))
    stored: tuple[int, ...] = (4, 4)
    live: tuple[int, ...] = (1, 0)
    siblings: tuple[tuple[tuple[int, ...], int], ...] = (((1, 2, 5, 7), 4),)
    arrived: int = 2
    believed: bool = True
    budget: Budget = USUAL
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> EngineConfig:
        """The engine's configuration: eight pages on the device, one page of staging less than both prompts lack."""
        limits = TIGHT.model_copy(update={k: v for k, v in self.settings.items() if k in Limits.model_fields})
        options: dict[str, Any] = {
            "page_size": PAGE,
            "device_pages": 8,
            "staging_pages": 5,
            "largest_request_tokens": 5 * PAGE,
            "host_memory_mode": HostMode.BUFFER_ONLY,
            "prefetch_policy": PrefetchPolicy.BEST_EFFORT,
            "prefetch_threshold_tokens": PAGE,
            "pin_fraction": 0.375,
            "load_limit_fraction": 1.0,
            "write_backlog_tokens": PAGE,
            "belief_capacity": 32,
            "operation_window": 8,
            "page_cache_fraction": 0.0,
            **{k: v for k, v in self.settings.items() if k not in Limits.model_fields},
        }
        return EngineConfig(**options, limits=limits)

    def chain(self, pages: tuple[int, ...], tail: int = 1) -> Chain:
        """The prompt with these pages, and `tail` tokens behind them."""
        size = self.config().page_size
        tokens = [1000 * page + at for page in pages for at in range(size)]
        return Chain(Namespace("small"), np.asarray([*tokens, *range(tail)], dtype=np.uint32), size)
