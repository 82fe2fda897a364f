"""A pass of the demo as a run that the report page shows. It owns which figures a pass has of those that a run may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stagehold.lab.demo.report import DemoReport
from stagehold.lab.reports.run import Run, as_run

RANKS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "most": 1.0}
SLOWEST = 50


def run_of(report: DemoReport, name: str, log: Path) -> Run:
    """One pass; its engine's audit log may hold another pass, too. Times are of this machine, and not of a clock."""
    records = report.records(name)
    sums = ("prompt_tokens", "ideal_hit_tokens", "device_hit_tokens", "store_hit_tokens", "computed_tokens")
    waits = sorted(1e3 * one["first_token_seconds"] for one in records)
    found: dict[str, Any] = {
        "requests": len(records),
        **{total: sum(one[total] for one in records) for total in sums},
        "local_tokens": report.passes[name]["host_hit_tokens"],
        "retractions": report.passes[name]["retractions"],
        "ttft_ms": {rank: waits[max(0, -(-int(100 * share) * len(waits) // 100) - 1)] for rank, share in RANKS.items()},
        "ttft_ms_sorted": waits,
        "slowest": [_row(name, one) for one in sorted(records, key=lambda one: -one["first_token_seconds"])[:SLOWEST]],
        "audit_log": str(log),
    }
    return as_run(name, found)


def _row(name: str, one: dict[str, Any]) -> dict[str, Any]:
    tokens = ("prompt_tokens", "device_hit_tokens", "store_hit_tokens", "ideal_hit_tokens")
    return {
        "request": f"{name}: {one['rid']}",
        **{field: one[field] for field in tokens},
        "ttft_ms": 1e3 * one["first_token_seconds"],
    }
