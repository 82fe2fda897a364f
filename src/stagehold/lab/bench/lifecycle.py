"""What the lifecycle delivers, against an oracle, in virtual time: hits, waste, staging sizes, hard situations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stagehold.cache.stores.simulated import Delays
from stagehold.lab.expand import Scale
from stagehold.lab.scenarios import gone, late_write, outage
from stagehold.lab.traces import shipped_trace
from stagehold.lab.virtual import VirtualOptions, replay_virtually
from stagehold.lab.workload import Workload, load_workload

PAGE = 16
POOL_SHARE = 10
"""The device pool holds one part in ten of the working set: small enough that most hits come from the store."""

DELAYS = Delays(exists=(1, 8), get=(1, 8), put=(1, 8))


def bench_lifecycle(requests: int = 500) -> dict[str, Any]:
    """Replay the first `requests` of the conversation trace at three sizes of staging, then the situations.

    `oracle_tokens` could have been hit by someone who knows when each page was sent to the store; hits of pages that
    are on the device and were not sent yet come on top, so `hit_over_oracle` may exceed 1 by a little. `late_write`:
    store-hit tokens of 64 queued requests; `gone`: a lost anchor whose span left the store; `outage`: sixteen
    requests that wait through one.
    """
    workload = load_workload(shipped_trace(), requests=requests, scale=Scale(), page_size=PAGE)
    device, largest = _sizes(workload)
    rows = [_row(workload, device, staging) for staging in (largest, device, 2 * device)]
    late = late_write()
    return {
        "requests": requests,
        "device_pages": device,
        "working_set_pages": workload.working_set_pages,
        "staging": rows,
        "hit_rate_spread": max(row["hit_rate"] for row in rows) - min(row["hit_rate"] for row in rows),
        "late_write": {**asdict(late), "share": late.share},
        "gone": asdict(gone()),
        "outage": asdict(outage()),
    }


def _sizes(workload: Workload) -> tuple[int, int]:
    """Pages of the device pool and of the largest span."""
    largest = -(-workload.largest_request_tokens // PAGE)
    return max(workload.working_set_pages // POOL_SHARE, largest + 1), largest


def _row(workload: Workload, device: int, staging: int) -> dict[str, Any]:
    run = replay_virtually(workload, VirtualOptions(device_pages=device, staging_pages=staging, delays=DELAYS))
    return {
        "staging_pages": staging,
        "hit_tokens": run.hit_tokens,
        "oracle_tokens": run.judgement.oracle_tokens,
        "hit_over_oracle": run.judgement.ratio,
        "waste": run.waste,
        "hit_rate": run.hit_tokens / run.prompt_tokens,
        "reissues": run.max_reissues,
    }
