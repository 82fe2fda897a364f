"""A simulation as one JSON object: its figures, and for the report page its samples and its slowest requests.

It owns the names of the fields. Nothing of the machine it ran on is in it, so that equal options give equal objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stagehold import Stats
from stagehold.lab.simulate import Simulation
from stagehold.lab.simulate_series import DEFERRALS, Outcome, Samples, times
from stagehold.lab.stats import spread

KIND = "stagehold-simulation"
SLOWEST = 50
MS = 1_000_000


def figures(simulation: Simulation, samples: Samples) -> dict[str, Any]:
    """All sums and sizes of one simulation; tokens unless the name says otherwise. Times are of the trace's clock.

    Hits are those of first admissions. `waste` is the share of fetched tokens that were not spliced, by the engine's
    own books. What follows is seen from outside, alike for every policy: `phantom_hit_tokens` were counted as hits and
    held other content than their prefix calls for; `delivered_hit_tokens` are the hits without them;
    `wasted_read_tokens` were read from the store and never used, see `Reads`; `lookups` were answered by the store, and
    `retries` were launches of requests that had been launched before.
    """
    tally, stats = samples.tally, _stats(samples)
    done = tally.outcomes
    fetched = stats.fetched + stats.local
    reads, size = samples.store.reads, simulation.options.page_size
    return {
        "kind": KIND,
        **_options(simulation),
        "requests": tally.finished,
        "seconds": simulation.clock.now_ns / 1e9,
        "prompt_tokens": sum(one.prompt_tokens for one in done),
        "output_tokens": sum(one.output_tokens for one in done),
        "ideal_hit_tokens": tally.ideal_hit_tokens,
        "device_hit_tokens": tally.device_hit_tokens,
        "store_hit_tokens": tally.store_hit_tokens,
        "computed_tokens": tally.computed_tokens,
        "recomputed_tokens": tally.recomputed_tokens,
        "ttft_ms": _milliseconds([one.ttft_ns or 0 for one in done]),
        "queried_hit_tokens": stats.queried,
        "fetched_tokens": stats.fetched,
        "local_tokens": stats.local,
        "spliced_tokens": stats.spliced,
        "losses": stats.losses,
        "open_claim_tokens": stats.open_claims,
        "waste": 1 - stats.spliced / fetched if fetched else 0.0,
        "phantom_hit_tokens": samples.runner.phantom_tokens,
        "delivered_hit_tokens": tally.device_hit_tokens + tally.store_hit_tokens - samples.runner.phantom_tokens,
        "read_tokens": reads.pages * size,
        "wasted_read_tokens": reads.wasted * size,
        "lookups": samples.store.lookups,
        "compared_pages": samples.runner.compared_pages,
        "read_bytes": samples.store.read_pages * samples.page_bytes,
        "written_bytes": samples.store.written_pages * samples.page_bytes,
        "evicted_store_pages": samples.store.medium.evicted_pages,
        "retractions": sum(one.retractions for one in done),
        "retries": simulation.relaunches.all,
        "deferrals": times(stats, DEFERRALS),
        "declines": stats.declines,
        "gate_closings": stats.gate_closings,
        "max_retries": simulation.relaunches.most,
        "violations": stats.violations + stats.live_machines,
        "ticks": stats.ticks,
        "digest": samples.digest.hex(),
    }


def whole(simulation: Simulation, samples: Samples) -> dict[str, Any]:
    """The figures, `series` by name as columns, and `slowest` requests by time to first token."""
    slowest = sorted(samples.tally.outcomes, key=lambda one: -(one.ttft_ns or 0))[:SLOWEST]
    audit = simulation.options.audit
    return {
        **figures(simulation, samples),
        "audit_log": None if audit is None else str(audit),
        "series": dict(samples.columns()),
        "ttft_ms_sorted": _thinned(sorted((one.ttft_ns or 0) / MS for one in samples.tally.outcomes)),
        "slowest": [_row(one) for one in slowest],
    }


def faults(found: dict[str, Any]) -> list[str]:
    """What must not be in any run, each in words. A policy that charges ahead is allowed its phantoms."""
    ended = found["spliced_tokens"] + sum(found["losses"].values()) + found["open_claim_tokens"]
    wrong = {
        "invariants violated": found["violations"],
        "phantom hit tokens": 0 if found["charges_ahead"] else found["phantom_hit_tokens"],
        "queried hit tokens without an end": found["queried_hit_tokens"] - ended,
    }
    return [f"{count:,} {name}" for name, count in wrong.items() if count]


def _options(simulation: Simulation) -> dict[str, Any]:
    options, config = simulation.options, simulation.config
    return {
        "trace": options.trace.name,
        "cost": options.cost.name,
        "prefill_tokens_per_second": options.cost.prefill_tokens_per_second,
        "step_ms": options.cost.step_ms,
        "policy": options.policy.name,
        "charges_ahead": options.policy.charges_ahead,
        "mode": str(options.mode) if options.policy.tier else "no tier",
        "eviction": "belady" if options.belady else str(config.eviction),
        "fetch_gate": str(config.fetch_gate),
        "seed": options.seed,
        "page_tokens": options.page_size,
        "page_bytes": simulation.page_bytes,
        "device_pages": config.device_pages,
        "staging_pages": config.staging_pages,
        "store_bytes_per_second": options.link.bytes_per_second,
        "store_latency_ms": list(options.link.latency_ms),
    }


def _stats(samples: Samples) -> Stats:
    assert samples.stats is not None, "a simulation has its last figures when it has ended"
    return samples.stats


def _milliseconds(times_ns: list[int]) -> dict[str, float]:
    found = spread(np.array(times_ns, dtype=np.int64))
    named = {"mean": found.mean, "p50": found.p50, "p90": found.p90, "p99": found.p99, "most": found.most}
    p95 = sorted(times_ns)[max(0, -(-95 * len(times_ns) // 100) - 1)]
    return {name: value / MS for name, value in {**named, "p95": p95}.items()}


def _thinned(values: list[float], most: int = 400) -> list[float]:
    """At most so many of sorted values, at equal ranks, the last among them."""
    if len(values) <= most:
        return values
    return [values[round(at * (len(values) - 1) / (most - 1))] for at in range(most)]


def _row(one: Outcome) -> dict[str, Any]:
    return {
        "request": one.rid,
        "arrival_s": one.arrival_ms / 1000,
        "prompt_tokens": one.prompt_tokens,
        "device_hit_tokens": one.device_hit_tokens,
        "store_hit_tokens": one.store_hit_tokens,
        "ideal_hit_tokens": one.ideal_hit_tokens,
        "retractions": one.retractions,
        "admitted_ms": (one.admitted_ns or 0) / MS,
        "ttft_ms": (one.ttft_ns or 0) / MS,
        "finished_ms": one.finished_ns / MS,
    }
