"""What one process of the demo is told, and the sizes that follow from its prompts. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from stagehold import EngineConfig, HostMode, Limits
from stagehold.lab.demo.prompts import Prompt, distinct_pages
from stagehold.serving.model.layouts import ModelLayout
from stagehold.serving.model.sizes import options_of

PAGE = 64
CHUNK_TOKENS = 512
POOL_SHARE = 0.92
STAGING_RATIO = 2.0
SPARE_PAGES = 2
LEAST_PAGES = 16
"""A window's pool must hold a chunk, 8 pages, and some windows."""
TICKS = 100_000
"""Waits are for bytes that are on their way, on a machine that may be slow; the store's threads pace the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One process: which passes it makes over which sessions, where the store lies, what it writes.

    `sessions` are names; none: as many as fit into `seconds`. `threads` of 0 are chosen by a short measurement.
    """

    passes: tuple[str, ...]
    store: str
    result: str
    audit: str
    digests: str
    random: bool = False
    sessions: tuple[str, ...] = ()
    seconds: float = 150.0
    threads: int = 0
    answer_tokens: int = 8
    share: float = 1.0
    store_options: str = ""

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_bytes(orjson.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The spec that `write` kept."""
        raw: dict[str, Any] = orjson.loads(path.read_bytes())
        return cls(**{**raw, "passes": tuple(raw["passes"]), "sessions": tuple(raw["sessions"])})


def config_of(prompts: Sequence[Prompt], answer_tokens: int, layout: ModelLayout) -> EngineConfig:
    """An engine whose device pool holds most of the prompts' pages, or the largest request and a little."""
    largest = max(len(prompt.tokens) for prompt in prompts) + answer_tokens
    least = max(LEAST_PAGES, -(-largest // PAGE) + SPARE_PAGES)
    device = max(least, int(POOL_SHARE * distinct_pages(prompts, PAGE)))
    return EngineConfig(
        **options_of(layout, device_pages=device, staging_pages=int(STAGING_RATIO * device)),
        largest_request_tokens=largest,
        chunk_tokens=CHUNK_TOKENS,
        host_memory_mode=HostMode.CACHE,
        prefetch_threshold_tokens=PAGE,
        load_limit_fraction=1.0,
        limits=Limits(
            lookup_limit=TICKS,
            park_limit=TICKS,
            fetch_limit=TICKS,
            ready_limit=TICKS,
            put_limit=TICKS,
            write_wait_limit=3 * TICKS,
            wait_base_ticks=TICKS,
            wait_cap_ticks=TICKS,
            attach_limit=TICKS,
            detach_limit=TICKS,
        ),
    )
