"""Small stories, each of which moves some series from zero to a figure that can be told beforehand."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from stagehold import Namespace, RankLost
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.facts import differing
from stagehold.lifecycle.ranks.solo import Facts, Solo
from stagehold.specs.outcomes import HostMode, WritePolicy
from stagehold.specs.request import RequestState
from stagehold.testing.hand import SLOW_GETS, Hand

BYTES = {"parts": 2, "page_part_bytes": 32}
HALVES = {"tenant_share": 0.5, "load_limit_fraction": 1.0, "delays": SLOW_GETS}
STORE_ON = {"delays": Delays(exists=(1, 1), get=(1, 1), put=(100, 100))}


def by_hand() -> Any:
    """What walks do not come to, as the tests of counters have it: options, what happens, the count that it gives."""
    path = Path(__file__).parents[1] / "lifecycle" / "test_counters.py"
    spec = spec_from_file_location("stories_of_counters", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BY_HAND


def found(h: Hand, pages: int = 8) -> Any:
    h.put(h.prompt(pages))
    a = h.arrive("a", h.prompt(pages))
    h.tick(3)
    return a


def no_room(h: Hand) -> None:
    h.put(h.prompt(8))
    h.admit(h.arrive("other", h.prompt(24, 2)))
    a = h.arrive("a", h.prompt(8), new=16)
    h.tick(3)
    for _ in range(3):
        h.visit(a)


def two_parked(h: Hand) -> None:
    for family in (1, 2):
        h.put(h.prompt(24, family))
        h.arrive(f"r{family}", h.prompt(24, family))
    h.tick(6)


def pinned_out(h: Hand) -> None:
    for family in (1, 2):
        h.put(h.prompt(8, family))
        h.grow(h.prompt(8, family), 3)
        h.arrive(f"r{family}", h.prompt(8, family))
    h.tick(2)


def head_busy(h: Hand) -> None:
    h.put(h.prompt(4))
    h.arrive("short", h.prompt(4))
    h.tick(3)
    h.put(h.prompt(8))
    h.arrive("long", h.prompt(8))
    h.tick(2)


def short_of_staging(h: Hand) -> None:
    two_parked(h)
    h.tick(20)


def beside_another(h: Hand, *launched: tuple[int, int]) -> None:
    """Another tenant is there, and requests for (pages, grown) of families of their own arrive at once."""
    h.arrive("guest", h.prompt(1, 99), namespace=Namespace("another tenant"))
    for family, (pages, grown) in enumerate(launched, start=1):
        h.put(h.prompt(pages, family))
        h.grow(h.prompt(pages, family), grown)
        h.arrive(f"r{family}", h.prompt(pages, family))


def staging_for_another(h: Hand) -> None:
    beside_another(h, (12, 0), (12, 0))
    h.tick(3)


def pins_for_another(h: Hand) -> None:
    beside_another(h, (14, 10), (14, 10))
    h.tick(2)


def lookup_for_another(h: Hand) -> None:
    beside_another(h, (4, 0), (4, 0))
    h.tick()


def load_for_another(h: Hand) -> None:
    h.arrive("misses", h.prompt(4, 50))
    h.tick()
    beside_another(h, (12, 0))
    h.tick(10)


def backlog_for_another(h: Hand) -> None:
    beside_another(h)
    h.store.stall()
    h.run("a", h.prompt(12))


def full_backlog(h: Hand) -> None:
    h.store.stall()
    h.run("a", h.prompt(4))


def slow_write(h: Hand) -> None:
    h.run("a", h.prompt(4))
    h.tick(7)


def cut_short(h: Hand) -> None:
    h.run("a", h.prompt(4))
    h.shrink(h.prompt(4), 2)
    h.tick()


def lost_pages(h: Hand) -> None:
    h.put(h.prompt(8))
    h.arrive("a", h.prompt(8))
    h.tick(2)
    for name in h.names(h.prompt(8), 1):
        h.store.drop(name)
    h.until(lambda: h.taken("hold.fetching.fetched.NOTHING"), 9)


def ready_and_waiting(h: Hand) -> None:
    found(h)
    h.tick(5)


def too_little(h: Hand) -> None:
    h.put(h.prompt(8), 0, 1)
    h.arrive("a", h.prompt(8))
    h.tick(2)


def in_vain(h: Hand) -> None:
    a = found(h)
    h.grow(h.prompt(8), 3)
    h.serve(a)


def too_late(h: Hand) -> None:
    h.store.cut = None  # type: ignore[assignment, union-attr]  # it reads on
    h.engine.abort(found(h))
    h.tick(100)


def short_by_then(h: Hand) -> None:
    tokens = h.prompt(8)
    h.until_state(h.arrive("r", tokens), RequestState.RETRY)
    h.grow(tokens, 8)
    h.tick(10)


def written_back(h: Hand) -> None:
    for family in range(1, 5):
        h.run(f"r{family}", h.prompt(8, family))
    h.tick()


def evicted_first(h: Hand) -> None:
    h.run("a", h.prompt(8))
    h.shrink(h.prompt(8), 3)
    h.tick(2)


def recovered(h: Hand) -> None:
    h.outage()
    h.tick(300)


def closed(h: Hand) -> None:
    h.core.gate.lost = 1_000_000
    h.tick()
    h.arrive("a", h.prompt(8))
    h.tick()


def refused(h: Hand) -> None:
    h.core.steps.request.finish(h.machine(h.arrive("a", h.prompt(8))))
    h.tick()


def gone_astray(h: Hand) -> None:
    """Planted: five tokens that nobody asked for."""
    h.core.ledger.queried += 5
    h.tick()


class Drifting(Solo):
    """Planted: the other rank has recorded something else."""

    size = 2

    def exchange(self, facts: Facts) -> Facts:
        """Facts that cannot be the same."""
        return differing(facts)


class Silent(Solo):
    """Planted: the other rank is gone."""

    size = 2

    def exchange(self, facts: Facts) -> Facts:
        """It never answers."""
        raise RankLost("rank 1 has not answered")


def falls_silent(h: Hand) -> None:
    with pytest.raises(RankLost):
        h.tick()


SERVICE = {"engine_options": {"strict": False, "on_violation": lambda *_, **__: None}}
LATE = {"host_memory_mode": HostMode.CACHE, "write_policy": WritePolicy.WRITE_BACK, "staging_pages": 80}

Story = tuple[dict[str, Any], Callable[[Hand], object], dict[tuple[str, ...], float]]

STORIES: dict[str, Story] = {
    "a commit finds no room": ({"device_pages": 33}, no_room, {("deferred_tokens", "device"): 3 * 128}),
    "two spans do not fit in staging": (
        {"delays": SLOW_GETS}, two_parked,
        {("deferred_tokens", "staging"): 24 * 16, ("state_ticks", "hold", "parked"): 4,
         ("instances", "hold", "parked"): 1},
    ),
    "an anchor cannot be pinned": (
        {"pin_fraction": 0.08, "delays": SLOW_GETS}, pinned_out, {("deferred_tokens", "pin"): 5 * 16},
    ),
    "a shorter span goes first": ({"delays": SLOW_GETS}, head_busy, {("deferred_tokens", "head"): 8 * 16}),
    "a span is parked for too long": (
        {"delays": SLOW_GETS, "park_limit": 10}, short_of_staging,
        {("dropped_tokens", "staging"): 24 * 16, ("lost_tokens", "short_staging"): 24 * 16},
    ),
    "the store is found silent while a span is parked": (
        {"delays": SLOW_GETS, "fetch_limit": 5, "trip_results": 1, "trip_ratio": 0.1}, short_of_staging,
        {("events", "hold_io_commit_store_open"): 1, ("instances", "store", "open"): 1},
    ),
    "the backlog is full": (
        {"write_backlog_tokens": 32}, full_backlog, {("dropped_tokens", "backlog"): 4 * 16, ("refused_pages",): 4},
    ),
    "a write takes its time": (
        {**STORE_ON, **BYTES}, slow_write,
        {("backlog_pages",): 4, ("backlog_age_ticks",): 7, ("moved_bytes", "from_device"): 4 * 64,
         ("instances", "write", "storing"): 1, ("offered_pages",): 4, ("owned", "backlog"): 4},
    ),
    "the store has lost what it was believed to have": (
        BYTES, lost_pages,
        {("wrong_belief_pages",): 7, ("unused_read_pages", "failed"): 1, ("unused_read_bytes", "failed"): 64,
         ("moved_bytes", "store_read"): 64},
    ),
    "a hold waits for its request": (
        {}, ready_and_waiting, {("state_ticks", "hold", "ready"): 5, ("fetched_tokens",): 128},
    ),
    "too little is found": (
        {}, too_little, {("events", "request_answer_below_threshold"): 1,
                         ("event_tokens", "request_answer_below_threshold"): 16},
    ),
    "a sibling computes what is fetched": (
        BYTES, in_vain,
        {("unused_read_pages", "covered"): 3, ("unused_read_bytes", "covered"): 3 * 64,
         ("moved_bytes", "to_device"): 5 * 64, ("admitted_requests",): 1, ("admitted_prompt_tokens",): 129,
         ("admitted_device_tokens",): 48, ("admitted_store_tokens",): 80},
    ),
    "bytes come for nobody": (
        {**BYTES, "delays": SLOW_GETS}, too_late,
        {("unused_read_pages", "drained"): 8, ("unused_read_bytes", "drained"): 8 * 64},
    ),
    "a sibling computes what a retry would ask for": ({}, short_by_then, {("events", "request_due_too_short"): 1}),
    "a tail is evicted before its copy": (
        {}, cut_short, {("evicted_unwritten_pages",): 2, ("event_tokens", "write_start_copy"): 2 * 16},
    ),
    "host memory serves alone": (
        {"store": None, "host_memory_mode": HostMode.CACHE}, slow_write, {("host_only_pages",): 4},
    ),
    "pages wait for write-back": (LATE, written_back, {("held_back_pages",): 32}),
    "a page that waits for write-back leaves first": (LATE, evicted_first, {("evicted_held_back_pages",): 5}),
    "the store comes back": ({}, recovered, {("breaker_rest_ticks",): 128, ("events", "store_probed_good"): 1}),
    "the store is not worth its wait": (
        {"fetch_gate": "auto", "prefill_tokens_per_tick": 1_000}, closed,
        {("gate_closings",): 1, ("declined_launches", "losing"): 1},
    ),
    "staging is kept for another tenant": (
        HALVES, staging_for_another, {("refused_for_tenants", "staging"): 1, ("tenants",): 2},
    ),
    "pins are kept for another tenant": (HALVES, pins_for_another, {("refused_for_tenants", "pin"): 1}),
    "a lookup is kept for another tenant": (
        {**HALVES, "query_limit": 2}, lookup_for_another, {("refused_for_tenants", "lookup"): 1},
    ),
    "a load is kept for another tenant": (
        {**HALVES, "load_limit_fraction": 0.5}, load_for_another, {("refused_for_tenants", "load"): 1},
    ),
    "the backlog is kept for another tenant": (
        {**HALVES, "write_backlog_tokens": 16 * 16}, backlog_for_another, {("refused_for_tenants", "backlog"): 1},
    ),
    "an event comes at a wrong time": (SERVICE, refused, {("refused_events",): 1}),
    "a book is wrong": (SERVICE, gone_astray, {("token_gap_tokens",): 5, ("violations",): 1}),
    "ranks part, and go on without the store": (
        {"engine_options": {"group": Drifting()}, "divergence_policy": "quarantine", "attach": False},
        lambda h: h.tick(), {("events", "tick_agreed_quarantine"): 1},
    ),
    "a rank is gone": (
        {"engine_options": {"group": Silent()}, "attach": False}, falls_silent, {("events", "tick_timeout"): 1},
    ),
}  # fmt: skip
"""Options, what happens, and what some series are then, all of which were 0 before."""
