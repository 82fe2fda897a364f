"""Which options mean something only beside another one: a table, and the sentence for one that stands alone.

An option that was set and does nothing is a mistake that nobody would notice, so it is refused. Owns the table; what
cannot work for other reasons is refused by the engine's own configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagehold import EngineConfig, HostMode, PrefetchPolicy


@dataclass(frozen=True, slots=True)
class Partner:
    """`options` mean something only where `there` holds; `needs` says what that is, and how to have it."""

    options: tuple[str, ...]
    there: Callable[[EngineConfig, str | None], bool]
    needs: str


def _has_store(_config: EngineConfig, store: str | None) -> bool:
    return store is not None


ALWAYS: tuple[Partner, ...] = (
    Partner(
        ("host_memory_mode=buffer_only",),
        lambda config, store: config.host_memory_mode is HostMode.CACHE or store is not None or not config.tier,
        'a store, since a buffer keeps nothing: set store, or host_memory_mode = "cache"',
    ),
)  # fmt: skip
"""Combinations that are refused whether or not the option was set by hand."""

PARTNERS: tuple[Partner, ...] = (
    Partner(
        ("store",),
        lambda config, _store: config.tier,
        "staging, which every page passes: set staging_ratio, or staging_pages above 0",
    ),
    Partner(
        ("page_cache_fraction",),
        lambda config, _store: config.host_memory_mode is HostMode.BUFFER_ONLY,
        'host_memory_mode = "buffer_only"; in cache mode all of staging is a cache',
    ),
    Partner(
        ("limits.wait_base_ticks", "limits.wait_per_page_ticks", "limits.wait_cap_ticks"),
        lambda config, _store: config.prefetch_policy is PrefetchPolicy.TIMEOUT,
        'prefetch_policy = "timeout", whose numbers they are',
    ),
    Partner(
        ("limits.retry_interval_ticks", "limits.retry_interval_cap"),
        lambda config, _store: config.limits.retry_max_reissues > 0,
        "limits.retry_max_reissues above 0; without re-issues nothing is paced",
    ),
    Partner(
        ("kv_device",),
        lambda config, _store: config.parts > 0,
        "attached tensors: set parts and page_part_bytes, or leave the device to the runner",
    ),
    Partner(
        ("query_limit", "belief_capacity", "prefetch_policy", "limits.lookup_limit", "limits.put_limit",
         "limits.tries", "limits.belief_limit", "limits.absence_limit", "limits.suspect_window", "limits.trip_results",
         "limits.trip_ratio", "limits.open_limit", "limits.open_limit_cap", "limits.probe_limit", "limits.probe_trips",
         "limits.attach_limit", "limits.detach_limit"),
        _has_store,
        "a store: set store to its URL",
    ),
)  # fmt: skip
"""Options by what each needs beside it, refused where they were set and it is not there."""


def refuse_alone(config: EngineConfig, store: str | None, given: frozenset[str]) -> list[str]:
    """A sentence for each option that was `given` (by dotted name) and does nothing; empty where all is well."""
    found = [f"{'; '.join(one.options)} needs {one.needs}" for one in ALWAYS if not one.there(config, store)]
    for one in PARTNERS:
        if not one.there(config, store):
            found += [f"{name} is set, and needs {one.needs}" for name in one.options if name in given]
    return found
