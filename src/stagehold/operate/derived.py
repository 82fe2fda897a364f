"""The limits that follow from a configuration, each with its formula and the numbers that went into it.

Owns what is shown, and computes nothing that the engine computes: every value is the engine's own, and the arithmetic
beside it is an expression that gives the same (tests compute it). Pages are those of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stagehold import ComponentConfig, EngineConfig, HostMode, PrefetchPolicy
from stagehold.machines import step_bound
from stagehold.machines.declared import MACHINES
from stagehold.operate.settings import Configuration
from stagehold.specs.config import part_of
from stagehold.specs.declare import Life


@dataclass(frozen=True, slots=True)
class Derived:
    """One limit: what it is, how it is computed in words of options, and in this configuration's numbers."""

    name: str
    value: float
    unit: str
    formula: str
    arithmetic: str

    def line(self) -> str:
        """`name = arithmetic = value unit (formula)`."""
        shown = f"{self.value:,.0f}" if self.value == int(self.value) else f"{self.value:,g}"
        return f"{self.name} = {self.arithmetic} = {shown} {self.unit} ({self.formula})"


def derived(found: Configuration) -> list[Derived]:
    """All of them, in the order in which they follow from each other."""
    config = found.engine
    return [*_sizes(found), *_staging(config), *_components(config), *_bytes(config), *_waits(config), *_steps(config)]


def _sizes(found: Configuration) -> Iterator[Derived]:
    config = found.engine
    size, pool, largest = config.page_size, config.device_pages, config.largest_request_pages
    yield Derived("largest_request_pages", largest, "pages", "ceil(largest_request_tokens / page_size)",
                  f"ceil({config.largest_request_tokens} / {size})")  # fmt: skip
    yield Derived("pin_cap", config.pin_cap, "pages",
                  "max(0, min(floor(pin_fraction * device_pages), device_pages - largest_request_pages))",
                  f"max(0, min(floor({config.pin_fraction} * {pool}), {pool} - {largest}))")  # fmt: skip
    yield Derived("chunk_pages", config.chunk_pages, "pages",
                  "ceil(chunk_tokens / page_size); if unset of the largest request",
                  f"ceil({config.chunk_tokens or config.largest_request_tokens} / {size})")  # fmt: skip
    windows = (
        [one.window_pages(size) for one in config.components] if config.host_memory_mode is HostMode.BUFFER_ONLY else []
    )
    least = max(1, *windows) if windows else 1
    yield Derived("threshold_pages", config.threshold_pages, "pages",
                  "max(1, in buffer_only the widest window, ceil(prefetch_threshold_tokens / page_size))",
                  f"max(1, {least}, ceil({config.prefetch_threshold_tokens} / {size}))")  # fmt: skip
    expression = found.staging.arithmetic.rpartition(" = ")[0] or str(config.staging_pages)
    yield Derived("staging_pages", config.staging_pages, "pages",
                  "as set, or floor(staging_ratio * device_pages), or staging_bytes by the bytes of the device pools",
                  expression)  # fmt: skip


def _staging(config: EngineConfig) -> Iterator[Derived]:
    staging = config.staging_pages
    default = 0.5 if config.host_memory_mode is HostMode.CACHE else 0.9
    fraction = default if config.load_limit_fraction is None else config.load_limit_fraction
    yield Derived("load_limit_pages", config.load_limit_pages, "pages",
                  "max(1, floor(load_limit_fraction * staging_pages)): what holds may be launched for",
                  f"max(1, floor({fraction} * {staging}))")  # fmt: skip
    share = max(1, staging // 5)
    yield Derived("write_share_pages", share, "pages",
                  "max(1, floor(staging_pages / 5)): staging that writes have however busy loads are",
                  f"max(1, floor({staging} / 5))")  # fmt: skip
    yield Derived("write_limit_pages", max(share, staging - staging // 10), "pages",
                  "max(write_share_pages, staging_pages - loads - floor(staging_pages / 10)), here without loads",
                  f"max({share}, {staging} - 0 - floor({staging} / 10))")  # fmt: skip
    yield Derived("write_piece_pages", max(1, share // 2), "pages",
                  "max(1, floor(write_share_pages / 2)): the largest write",
                  f"max(1, floor({share} / 2))")  # fmt: skip
    if config.tenant_share:
        yield Derived("tenant_staging_pages", part_of(config.tenant_share, staging), "pages",
                      "floor(tenant_share * staging_pages): staging of each tenant, where no more share it than it can "
                      "be divided by; else an equal part",
                      f"floor({config.tenant_share} * {staging})")  # fmt: skip
    if config.write_backlog_tokens is None:
        shown = f"2 * {config.device_pages}"
    else:
        shown = f"max(1, floor({config.write_backlog_tokens} / {config.page_size}))"
    yield Derived("backlog_pages", config.backlog_pages, "pages",
                  "floor(write_backlog_tokens / page_size); 2 * device_pages if unset", shown)  # fmt: skip


def _components(config: EngineConfig) -> Iterator[Derived]:
    for one in config.components:
        window = one.window_pages(config.page_size)
        if one.windowed:
            yield Derived(f"{one.name}.window_pages", window, "pages", "ceil(window_tokens / page_size)",
                          f"ceil({one.window_tokens} / {config.page_size})")  # fmt: skip
        yield Derived(f"{one.name}.least_staging_pages", 2 * max(1, window), "pages",
                      "2 * max(1, window_pages): two holds, each whole", f"2 * max(1, {window})")  # fmt: skip
        yield Derived(f"{one.name}.least_device_pages", *_least_device(one, config.chunk_pages, window))


def _least_device(one: ComponentConfig, chunk: int, window: int) -> tuple[int, str, str, str]:
    if not one.windowed:
        return 3, "checkpoints", "one to compute in, one to go on from, one free", "1 + 1 + 1"
    spare = 1 + (not one.ring)
    formula = "2 * window_pages + max(chunk_pages, window_pages) + 2, or + 1 for a ring"
    return 2 * window + max(chunk, window) + spare, "pages", formula, f"2 * {window} + max({chunk}, {window}) + {spare}"


def pools(config: EngineConfig) -> list[tuple[str, int, int, int]]:
    """Each component's name, pages on the device, pages in staging, and bytes of a page (0: none attached)."""
    own = [("full", config.device_pages, config.staging_pages, config.page_bytes)]
    return own + [
        (one.name, one.device_pages, one.staging_pages, one.parts * one.page_part_bytes) for one in config.components
    ]


def host_bytes(config: EngineConfig) -> int:
    """Bytes of host memory that the staging of one rank takes."""
    return sum(staging * size for _, _, staging, size in pools(config))


def device_bytes(config: EngineConfig) -> int:
    """Bytes of device memory that the pools of one rank take."""
    return sum(pages * size for _, pages, _, size in pools(config))


def _bytes(config: EngineConfig) -> Iterator[Derived]:
    if not config.page_bytes:
        return
    yield Derived("page_bytes", config.page_bytes, "bytes", "parts * page_part_bytes",
                  f"{config.parts} * {config.page_part_bytes}")  # fmt: skip
    every = pools(config)
    yield Derived("device_bytes", device_bytes(config), "bytes", "sum of device_pages * page_bytes, one rank",
                  " + ".join(f"{pages} * {size}" for _, pages, _, size in every))  # fmt: skip
    yield Derived("host_bytes", host_bytes(config), "bytes", "sum of staging_pages * page_bytes, one rank",
                  " + ".join(f"{staging} * {size}" for _, _, staging, size in every))  # fmt: skip


def _waits(config: EngineConfig) -> Iterator[Derived]:
    limits, pages = config.limits, config.largest_request_pages
    yield Derived("issue_limit", limits.issue_limit, "launches", "1 + limits.retry_max_reissues",
                  f"1 + {limits.retry_max_reissues}")  # fmt: skip
    match config.prefetch_policy:
        case PrefetchPolicy.BEST_EFFORT:
            wait, formula, shown = 0, "best_effort waits for nothing", "0"
        case PrefetchPolicy.WAIT_COMPLETE:
            wait, formula = config.wait_complete_ticks, "lookup_limit + park_limit + fetch_limit"
            shown = f"{limits.lookup_limit} + {limits.park_limit} + {limits.fetch_limit}"
        case PrefetchPolicy.TIMEOUT:
            wait = min(limits.wait_cap_ticks, limits.wait_base_ticks + int(limits.wait_per_page_ticks * pages))
            formula = "min(wait_cap_ticks, wait_base_ticks + floor(wait_per_page_ticks * pages of the hit))"
            base, each = limits.wait_base_ticks, limits.wait_per_page_ticks
            shown = f"min({limits.wait_cap_ticks}, {base} + floor({each} * {pages}))"
    yield Derived(
        "longest_wait_ticks",
        wait,
        "ticks",
        f"{formula}: how long the largest request is held back, once there is room for it",
        shown,
    )
    yield Derived("slowest_launch_ticks", config.wait_complete_ticks, "ticks",
                  "lookup_limit + park_limit + fetch_limit: the longest way of one launch to its bytes",
                  f"{limits.lookup_limit} + {limits.park_limit} + {limits.fetch_limit}")  # fmt: skip


def _steps(config: EngineConfig) -> Iterator[Derived]:
    for spec in MACHINES:
        bound = step_bound(spec, config.limits) if spec.life is Life.FINITE else None
        if bound is not None:
            run, counted, clocks = bound.stretch, sum(bound.counters.values()), sum(bound.clocks.values())
            yield Derived(f"{spec.name}.most_steps", bound.steps, "steps",
                          "stretch + (stretch + 1) * (counted + (1 + counted) * clocks): the most of one instance",
                          f"{run} + ({run} + 1) * ({counted} + (1 + {counted}) * {clocks})")  # fmt: skip
