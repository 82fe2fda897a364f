"""The worlds that are searched to the last situation. Data only.

In each, pages are evicted, a sibling publishes (and so splits what is live) and a store fails; `total` says how many of
these troubles one way may have. They differ in what the requests have in common, in how long they are waited for, and
in what the store does besides.
"""

from __future__ import annotations

from typing import Any

from stagehold.specs.outcomes import HostMode, PrefetchPolicy
from stagehold.testing.explore.small import Budget, SmallWorld

ONE_LAUNCH: dict[str, Any] = {"retry_max_reissues": 0}
EQUAL: dict[str, Any] = {"prompts": ((1, 2, 3), (1, 2, 3)), "stored": (3, 3), "siblings": (((1, 2, 5), 3),)}
ALONE: dict[str, Any] = {"prompts": ((1, 2, 3, 4),), "stored": (4,), "live": (1,), "arrived": 1}

WORLDS: tuple[SmallWorld, ...] = (
    SmallWorld(
        "fork",
        "two prompts that part behind a common head; nobody is waited for",
        budget=Budget(total=1, late=0),
        settings=ONE_LAUNCH,
    ),
    SmallWorld(
        "shared",
        "two equal prompts, so that one hold has two claims",
        **EQUAL,
        budget=Budget(total=1, late=0),
        settings=ONE_LAUNCH,
    ),
    SmallWorld(
        "patient",
        "two prompts that part, each waited for as long as the limits allow",
        budget=Budget(total=1, late=0),
        settings={**ONE_LAUNCH, "prefetch_policy": PrefetchPolicy.WAIT_COMPLETE},
    ),
    SmallWorld(
        "alone",
        "one request that may be launched twice, with two troubles on a way and operations that are late",
        **ALONE,
        budget=Budget(total=2, late=1),
    ),
    SmallWorld(
        "given back",
        "one request whose visits are given back, whose deliveries are short, and that is sent back and launched again",
        **ALONE,
        budget=Budget(total=2, late=0, retract=1, release=1, short=1, lag=0, abort=0),
    ),
    SmallWorld(
        "written",
        "two equal prompts that no store has: the one that is computed first is written, and wakes the other",
        **EQUAL | {"stored": (0, 0)},
        believed=False,
        budget=Budget(total=1, late=0, abort=0, lag=0),
        settings=ONE_LAUNCH,
    ),
    SmallWorld(
        "tiered",
        "one request over a host tier that keeps what was fetched; a flush, and pages that the store loses",
        **ALONE,
        budget=Budget(total=2, late=0, flush=1, lose=1, lag=0),
        settings={"host_memory_mode": HostMode.CACHE},
    ),
    SmallWorld(
        "kept",
        "one request over staging that keeps pages as long as nobody else wants them",
        **ALONE,
        budget=Budget(total=2, late=0, flush=1, lag=0, abort=0),
        settings={"page_cache_fraction": 0.5},
    ),
    SmallWorld(
        "unpinned",
        "one request whose anchor nobody protects, so that it is lost under what was fetched behind it",
        **ALONE | {"live": (2,)},
        budget=Budget(total=2, late=0, evict=2, lag=0),
        settings={"pin_fraction": 0.0},
    ),
    SmallWorld(
        "outage",
        "one request and a store whose breaker trips at the first fault, is probed and heals; a detach",
        **ALONE,
        budget=Budget(total=2, late=0, detach=1, lag=0),
        settings={"trip_results": 1},
    ),
)
