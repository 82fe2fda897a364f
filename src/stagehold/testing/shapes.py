"""What a World is made of: sizes, limits, and how badly store and copies behave. Data, and one way to draw it.

A small world with short limits meets in a few hundred acts what a server meets in a month. The same seed draws the
same shape.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from stagehold.cache.keys import Namespace
from stagehold.cache.stores.simulated import Delays, Rates
from stagehold.specs.config import EngineConfig
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import HostMode, PrefetchPolicy
from stagehold.testing.content import TOKEN_BYTES, Prompt, Tokens

PAGE = 4
"""Tokens in a page: the smallest that a hit, a tail and a threshold of more than one token fit in."""

SHORT = Limits(
    retry_interval_ticks=3, retry_interval_cap=6, retry_max_reissues=3, max_staged_admission_defers=3,
    lookup_limit=6, park_limit=14, fetch_limit=10, ready_limit=24,
    write_wait_limit=30, put_limit=9, tries=2, absence_limit=1,
    suspect_window=8, trip_results=4, open_limit=12, open_limit_cap=24, probe_limit=16, probe_trips=2,
    attach_limit=24, detach_limit=9, wait_base_ticks=5, wait_per_page_ticks=0.5, wait_cap_ticks=14,
)  # fmt: skip
"""Limits short enough to be reached often, in the proportions of the real ones."""


@dataclass(frozen=True, slots=True)
class WorldShape:
    """One kind of world. Ticks are (least, most), both included.

    `branches` gives, for each stem of the prompts, the token at which it leaves the first; `medium_pages` is how many
    pages the store can keep (None: all of them). `alone`: an engine is born without a store.
    """

    config: EngineConfig
    branches: tuple[int, ...] = (0, 8, 13, 20, 32)
    namespaces: tuple[Namespace, ...] = (Namespace("m"), Namespace("m", cache_salt="s"))
    copy_ticks: tuple[int, int] = (1, 3)
    delays: Delays = field(default_factory=Delays)
    rates: Rates = field(default_factory=Rates)
    pages_per_tick: int | None = None
    medium_pages: int | None = None
    alone: bool = False

    def stretch(self, tokens: int) -> int:
        """A number of tokens that is meant for pages of `PAGE`, in pages of this size; some end inside a page."""
        size = self.config.page_size
        return (
            tokens if size == PAGE else max(min(1, tokens), tokens * size // PAGE - (tokens % 3 if size > PAGE else 0))
        )

    def answer(self, tokens: int) -> int:
        """The same for an answer, which never grows: each of its tokens is a step."""
        return min(tokens, self.stretch(tokens))

    def tokens(self, prompt: Prompt) -> Tokens:
        """The ids of a prompt."""
        stretched = replace(prompt, shared=self.stretch(prompt.shared), own=self.stretch(prompt.own))
        return stretched.tokens(tuple(map(self.stretch, self.branches)))

    @property
    def chunk(self) -> int:
        """The most tokens that are computed at once."""
        return self.config.chunk_tokens or self.config.largest_request_tokens

    @property
    def honest(self) -> bool:
        """Whether the store, left alone, keeps what it acknowledged."""
        rates = self.rates
        return self.medium_pages is None and not (rates.lose or rates.corrupt or rates.short)


def small(**changes: object) -> WorldShape:
    """A world of 40 device pages and 10 staging pages that misbehaves in nothing; `changes` are engine options."""
    options: dict[str, object] = {
        "page_size": PAGE,
        "device_pages": 40,
        "staging_pages": 10,
        "largest_request_tokens": 72,
        "host_memory_mode": HostMode.BUFFER_ONLY,
        "prefetch_threshold_tokens": PAGE,
        "page_cache_fraction": 0.0,
        "parts": 2,
        "page_part_bytes": PAGE * TOKEN_BYTES,
        "limits": SHORT,
        **changes,
    }
    return WorldShape(EngineConfig.model_validate(options))


def drawn(seed: int) -> WorldShape:
    """The shape of a seed: some worlds are roomy, some are tight, some have a store that lies."""
    dice = random.Random(f"shape {seed}")  # noqa: S311 - reproducible on purpose
    limits = SHORT.model_copy(
        update={
            "retry_interval_ticks": dice.choice((3, 3, 3, 0)),
            "retry_max_reissues": dice.choice((3, 1, 8, 1)),
            "max_staged_admission_defers": dice.choice((3, 1)),
            "trip_results": dice.choice((4, 4, 4, 2)),
        }
    )
    # In a tight world one large request fills the device, and copies are slow to give it back.
    tight = dice.random() < 0.25
    shape = small(
        device_pages=20 if tight else dice.choice((24, 32, 40, 64)),
        staging_pages=24 if tight else dice.choice((5, 8, 10, 16, 24)),
        host_memory_mode=dice.choice((HostMode.BUFFER_ONLY, HostMode.BUFFER_ONLY, HostMode.CACHE)),
        prefetch_policy=dice.choice((PrefetchPolicy.TIMEOUT, PrefetchPolicy.TIMEOUT, *PrefetchPolicy)),
        prefetch_threshold_tokens=dice.choice((PAGE, PAGE, 3 * PAGE)),
        pin_fraction=dice.choice((0.5, 0.5, 0.1, 0.0)),
        load_limit_fraction=dice.choice((None, None, 0.3, 1.0)),
        write_backlog_tokens=dice.choice((None, None, 6 * PAGE)),
        query_limit=dice.choice((64, 64, 1)),
        operation_window=dice.choice((256, 256, 8)),
        limits=limits,
    )
    return replace(
        shape,
        copy_ticks=(6, 16) if tight else dice.choice(((1, 1), (1, 3), (4, 16))),
        delays=dice.choice((Delays(), Delays(), Delays((1, 4), (1, 8), (1, 8)), Delays((1, 8), (3, 14), (1, 12)))),
        rates=dice.choice((Rates(), Rates(), Rates(), Rates(fail=0.12, stall=0.01), _LIAR)),
        pages_per_tick=dice.choice((None, None, 1, 2)),
        medium_pages=dice.choice((None, None, 40)),
        config=shape.config.model_copy(update={"page_cache_fraction": dice.choice((0.0, 0.0, 0.5))}),
    )


_LIAR = Rates(lose=0.05, fail=0.05, corrupt=0.04, short=0.04, stall=0.01)
