"""Every statistic of an engine in one table: its name, its unit, when it moves, and how it is read from a snapshot.

The exporter, the page docs/metrics.md and the tests go through this table, so that none of them can leave one out.
Every series of a measure exists from the first scrape on: its labels come from the declarations and the enums, and
what has not happened yet is zero. Owns names and sentences; counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from stagehold.lifecycle.happened import PUT_OFF
from stagehold.lifecycle.quotas import RESOURCES
from stagehold.lifecycle.stats import Stats
from stagehold.machines import counters
from stagehold.machines.declared import MACHINES, rows_of
from stagehold.operate.snapshot import Rates, Snapshot, Times, moved
from stagehold.specs.outcomes import Decline, Loss, Thrown


class Kind(StrEnum):
    """What a measure does over time: only grow, go up and down, or count times by bucket."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Labels = tuple[str, ...]
Values = Mapping[Labels, float]


@dataclass(frozen=True, slots=True)
class Measure:
    """One statistic. `read` gives the value of each of its series, or the times of a histogram."""

    name: str
    kind: Kind
    unit: str
    moves: str
    read: Callable[[Snapshot], Values | Times]
    labels: Labels = ()


def _counter(name: str, unit: str, moves: str, of: Callable[[Stats], float]) -> Measure:
    return Measure(name, Kind.COUNTER, unit, moves, lambda seen: {(): of(seen.stats)})


def _gauge(name: str, unit: str, moves: str, of: Callable[[Snapshot], float]) -> Measure:
    return Measure(name, Kind.GAUGE, unit, moves, lambda seen: {(): of(seen)})


def _by(names: Any, found: Mapping[str, float]) -> Values:
    """A series for each name, zero where nothing was found."""
    return {(name,): found.get(name, 0) for name in names}


def _lower(members: Any) -> list[str]:
    return [member.name.lower() for member in members]


# What labels there are


NEVER_ANY = ("request_answer_miss", "hold_io_commit_no_anchor")
"""Counters whose effect has tokens in another outcome only: a miss has found none, the root has no head to trim."""


@lru_cache(maxsize=1)
def with_tokens() -> tuple[str, ...]:
    """Counters whose records can have tokens."""
    found = {
        counters.counter(spec, row): counters.meaning(row)
        for spec in MACHINES
        if spec.name in counters.HERE
        for row in rows_of(spec)
        if counters.is_recorded(spec, row) and not counters.is_decline(row)
    }
    return tuple(name for name, meaning in found.items() if meaning != "-" and name not in NEVER_ANY)


@lru_cache(maxsize=1)
def entered() -> tuple[str, ...]:
    """States that an instance is born in or led to by a row that leaves a record."""
    return tuple(
        f"{spec.name}.{state.name.name.lower()}"
        for spec in MACHINES
        if spec.name in counters.HERE and not spec.sparse
        for state in spec.states
    )


@lru_cache(maxsize=1)
def resources() -> tuple[str, ...]:
    """What a state may own, over all machines whose instances are in the ledger."""
    ledgered = ("request", "hold", "write", "store", "attachment")
    owned = {name for spec in MACHINES if spec.name in ledgered for state in spec.states for name in state.owns}
    return tuple(sorted(owned))


def _states(found: Mapping[str, float], names: Any) -> Values:
    return {(name.partition(".")[0], name.partition(".")[2]): found.get(name, 0) for name in names}


DROPPED: Mapping[str, Callable[[Stats], int]] = {
    "staging": lambda stats: stats.losses.get("short_staging", 0) + stats.losses.get("oversize", 0),
    "device": lambda stats: stats.losses.get("short_device", 0),
    "backlog": lambda stats: stats.count("write_offer_full").tokens,
    "write_share": lambda stats: stats.count("write_offer_never_fits").tokens,
}
"""Tokens that were given up for want of something, by what that was."""

PATHS = ("store_read", "store_write", "to_device", "from_device")


def _moved_pages(stats: Stats) -> Values:
    pages = (stats.read.pages, stats.stored_pages, stats.to_device.pages, stats.from_device.pages)
    return {(path,): count for path, count in zip(PATHS, pages, strict=True)}


def _moved_bytes(stats: Stats) -> Values:
    return {(path,): count for path, count in zip(PATHS, moved(stats), strict=True)}


def _rates(rates: Rates) -> Values:
    values = (rates.store_read, rates.store_written, rates.to_device, rates.from_device)
    return {(path,): value for path, value in zip(PATHS, values, strict=True)}


USES = ("device_pages", "device_used", "device_reserved", "staging_pages", "staging_used", "staging_kept",
        "staging_written")  # fmt: skip


def _pools(stats: Stats) -> Values:
    return {
        (component, *use.split("_", 1)): getattr(pool, use) for component, pool in stats.pools.items() for use in USES
    }


def _reissues(stats: Stats) -> int:
    return sum(count.taken for name, count in stats.counters.items() if name.startswith("request_due_"))


TICKS = (
    _counter("ticks", "ticks", "with every tick", lambda s: s.ticks),
    Measure("tick_seconds", Kind.HISTOGRAM, "seconds", "with every tick that the feed timed: how long it took",
            lambda seen: seen.durations),
    Measure("tick_lag_seconds", Kind.HISTOGRAM, "seconds",
            "with every tick but the first: from the end of the one before to its begin, which the pass took",
            lambda seen: seen.lags),
    _gauge("snapshot_timestamp_seconds", "seconds since the epoch", "when a snapshot is published", lambda s: s.wall),
    _gauge("live_machines", "instances", "requests, holds and writes that are alive", lambda s: s.stats.live_machines),
)  # fmt: skip

TOKENS = (
    _counter("queried_tokens", "tokens", "a claim on found pages opens", lambda s: s.queried),
    _counter("spliced_tokens", "tokens", "a claim ends, and its tokens were loaded", lambda s: s.spliced),
    Measure("lost_tokens", Kind.COUNTER, "tokens", "a claim, or part of it, ends otherwise, by the reason",
            lambda seen: _by(_lower(Loss), seen.stats.losses), ("reason",)),
    _gauge("open_claim_tokens", "tokens", "claims that have not ended", lambda s: s.stats.open_claims),
    _gauge("token_gap_tokens", "tokens", "never: queried less spliced, lost and open; another value than 0 is a breach",
           lambda s: s.stats.token_gap),
    _counter("violations", "breaches", "a book is found wrong that was right a tick before", lambda s: s.violations),
    _counter("refused_events", "events", "an event comes that its state does not take", lambda s: s.refused_events),
    _counter("fetched_tokens", "tokens", "a fetch is sent off: what it asks the store for", lambda s: s.fetched),
    _counter("local_tokens", "tokens", "a hold takes what host memory has already", lambda s: s.local),
    Measure("deferred_tokens", Kind.COUNTER, "tokens",
            "a commit finds no room (device), a parked hold is tried and has to wait (pin, staging, head), each time",
            lambda seen: _by(("device", *PUT_OFF.values()), seen.stats.put_off), ("resource",)),
    Measure("dropped_tokens", Kind.COUNTER, "tokens",
            "a claim ends for want of staging or device, a write is refused for want of backlog or write share",
            lambda seen: _by(DROPPED, {name: of(seen.stats) for name, of in DROPPED.items()}), ("resource",)),
)  # fmt: skip

REQUESTS = (
    _counter("admitted_requests", "requests", "a commit admits", lambda s: s.admitted.requests),
    _counter("admitted_prompt_tokens", "tokens", "a commit admits: all of the prompt", lambda s: s.admitted.prompt),
    _counter("admitted_device_tokens", "tokens", "a commit admits: what the device had", lambda s: s.admitted.device),
    _counter("admitted_store_tokens", "tokens", "a commit admits: what came from host or store",
             lambda s: s.admitted.store),
    _counter("reissues", "launches", "a retry falls due", _reissues),
    _gauge("max_reissues", "launches", "an attempt has more of them than any before", lambda s: s.stats.max_reissues),
    Measure("declined_launches", Kind.COUNTER, "launches", "a launch is declined, by the reason",
            lambda seen: _by(_lower(Decline), seen.stats.declines), ("reason",)),
)  # fmt: skip

MACHINE_STATES = (
    Measure("events", Kind.COUNTER, "records", "a row is taken, see the page of counters",
            lambda seen: _by(counters.names(), {n: c.taken for n, c in seen.stats.counters.items()}), ("counter",)),
    Measure("event_tokens", Kind.COUNTER, "tokens", "a row is taken whose record has tokens",
            lambda seen: _by(with_tokens(), {n: c.tokens for n, c in seen.stats.counters.items()}), ("counter",)),
    Measure("instances", Kind.GAUGE, "instances", "at every change of state: how many stand there at the end of a tick",
            lambda seen: _states(seen.stats.states, seen.stats.states), ("machine", "state")),
    Measure("state_ticks", Kind.COUNTER, "ticks", "with every tick that an instance ends in the state; parked and ready"
            " holds among them", lambda seen: _states(seen.stats.state_ticks, seen.stats.states), ("machine", "state")),
    Measure("entered", Kind.COUNTER, "instances", "an instance enters the state, or is born in it",
            lambda seen: _states(seen.stats.state_entries, entered()), ("machine", "state")),
)  # fmt: skip

MOVES = (
    Measure("moved_pages", Kind.COUNTER, "pages", "pages have been read and verified, acknowledged, or sent between"
            " staging and device", lambda seen: _moved_pages(seen.stats), ("path",)),
    Measure("moved_bytes", Kind.COUNTER, "bytes", "as moved_pages, where tensors are attached",
            lambda seen: _moved_bytes(seen.stats), ("path",)),
    Measure("bandwidth_bytes_per_second", Kind.GAUGE, "bytes a second", "as moved_bytes: the last ten seconds",
            lambda seen: _rates(seen.rates), ("path",)),
    Measure("unused_read_pages", Kind.COUNTER, "pages", "pages that were read turn out to be of no use to who asked",
            lambda seen: _by(list(Thrown), {r: a.pages for r, a in seen.stats.thrown.items()}), ("reason",)),
    Measure("unused_read_bytes", Kind.COUNTER, "bytes", "as unused_read_pages, where tensors are attached",
            lambda seen: _by(list(Thrown), {r: a.bytes for r, a in seen.stats.thrown.items()}), ("reason",)),
    _gauge("believed_pages", "keys", "a write is acknowledged or a lookup finds pages; a shortfall, age, capacity",
           lambda s: s.stats.beliefs),
    _counter("wrong_belief_pages", "keys", "a page that was believed stored does not come back",
             lambda s: s.wrong_beliefs),
)  # fmt: skip

WRITES = (
    _counter("offered_pages", "pages", "computed pages are offered for writing", lambda s: s.offered_pages),
    _counter("refused_pages", "pages", "an offer is refused; the reasons are events", lambda s: s.refused_pages),
    _counter("stored_pages", "pages", "a put is acknowledged", lambda s: s.stored_pages),
    _counter("host_only_pages", "pages", "a write ends in host memory, since no store is in use",
             lambda s: s.host_only_pages),
    _counter("dropped_pages", "pages", "an admitted write ends without having been stored", lambda s: s.dropped_pages),
    _counter("evicted_unwritten_pages", "pages", "a copy begins and finds its tail evicted",
             lambda s: s.evicted_unwritten_pages),
    _counter("evicted_held_back_pages", "pages", "a page that waits for write-back is evicted first",
             lambda s: s.evicted_held_back_pages),
    _gauge("backlog_pages", "pages", "a write is admitted, or ends", lambda s: s.stats.backlog_pages),
    _gauge("backlog_writes", "writes", "a write is queued, or begins", lambda s: s.stats.backlog_writes),
    _gauge("backlog_age_ticks", "ticks", "with every tick while a write is pending: how long the oldest is",
           lambda s: s.stats.backlog_age),
    _gauge("held_back_pages", "pages", "a page waits for write-back, or is offered", lambda s: s.stats.held_back_pages),
)  # fmt: skip

HELD = (
    Measure("owned", Kind.GAUGE, "pages, or 1 each", "a machine takes a resource, or gives it back",
            lambda seen: _by(resources(), seen.stats.owned), ("resource",)),
    Measure("pool_pages", Kind.GAUGE, "pages", "pages of a pool are taken, promised, kept, given back",
            lambda seen: _pools(seen.stats), ("component", "pool", "use")),
    _gauge("pinned_pages", "pages", "the anchor of a fetch is pinned, or let go", lambda s: s.stats.pinned_pages),
    _gauge("pin_cap_pages", "pages", "never: what may be pinned at most", lambda s: s.config.pin_cap),
    _gauge("kept_pages", "pages", "host memory keeps a page, or gives it up", lambda s: s.stats.kept_pages),
    _gauge("reserved_pages", "pages", "an admission promises pages; they are taken, or its request ends",
           lambda s: s.stats.reserved_pages),
    _gauge("breaker_rest_ticks", "ticks", "the store's breaker trips: how long it rests",
           lambda s: s.stats.breaker_rest),
    _gauge("tenants", "namespaces", "a namespace begins to share what there is (`tenant_share`), or does no more",
           lambda s: s.stats.tenants),
    Measure("refused_for_tenants", Kind.COUNTER, "refusals",
            "a hold, launch or write is refused what there is room for, since that is kept for other tenants",
            lambda seen: _by(RESOURCES, seen.stats.refused_for_tenants), ("resource",)),
    _counter("gate_closings", "times", "waiting for the store is found to cost more than computing (`fetch_gate`)",
             lambda s: s.gate_closings),
)  # fmt: skip

SECTIONS: tuple[tuple[str, tuple[Measure, ...]], ...] = (
    ("The tick", TICKS), ("Tokens", TOKENS), ("Requests", REQUESTS), ("Machines and their states", MACHINE_STATES),
    ("Bytes and beliefs", MOVES), ("Writes", WRITES), ("What is held", HELD),
)  # fmt: skip

MEASURES = tuple(measure for _, measures in SECTIONS for measure in measures)
"""All of them, in the order of the page."""


def series(seen: Snapshot) -> dict[tuple[str, Labels], float]:
    """Every series of every measure by name and labels; of a histogram its count."""
    found: dict[tuple[str, Labels], float] = {}
    for measure in MEASURES:
        values = measure.read(seen)
        rows = {(): float(values.count)} if isinstance(values, Times) else values
        found |= {(measure.name, labels): value for labels, value in rows.items()}
    return found


def constant_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Labels for every series, such as the rank. ValueError for those that a scrape could not be read with."""
    own = {"le", *(label for measure in MEASURES for label in measure.labels)}
    for name, value in (labels or {}).items():
        if re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name) is None:
            raise ValueError(f"label {name!r}: expected letters, digits and _, no digit and no __ in front")
        if name in own:
            raise ValueError(f"label {name!r}: expected another name, since some series have one of that name")
        if not isinstance(value, str):
            raise ValueError(f"label {name!r}: expected text, found {value!r}")  # noqa: TRY004 - as the others
    return dict(labels or {})
