"""The requests of one replay and the sizes that follow from them, before any engine exists.

It owns the arithmetic of the pools: working set, device pool, staging, largest request. It starts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from stagehold.lab.expand import ReplayRequest, Scale, ScaleError, Unbounded, expand
from stagehold.lab.traces import Format, TraceError, read_trace

POOL_SHARE = 4  # the device pool holds at most one part in four of the working set


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in arrival order; `ideal_hits[i]` is what a cache that never forgets would hit, in tokens."""

    requests: tuple[ReplayRequest, ...]
    ideal_hits: tuple[int, ...]
    page_size: int
    working_set_pages: int

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(len(request.tokens) for request in self.requests)

    @property
    def largest_request_tokens(self) -> int:
        """Prompt and answer of the largest request."""
        return max(len(request.tokens) + request.output_tokens for request in self.requests)

    @property
    def device_pages(self) -> int:
        """A quarter of the working set, but room for the largest request and one page more, for a pin."""
        least = -(-self.largest_request_tokens // self.page_size) + 1
        return max(self.working_set_pages // POOL_SHARE, least)


def load_workload(
    trace: Path, *, requests: int, scale: Scale, page_size: int, tenants: int = 1, trace_format: Format | None = None
) -> Workload:
    """Expand the first `requests` requests of `trace`; `TraceError` if it has none, or is malformed, or in pieces."""
    try:
        chosen = tuple(islice(expand(read_trace(trace, trace_format), scale, tenants), requests))
    except ScaleError as error:
        raise TraceError(trace, 0, "another scale", str(error)) from error
    if not chosen:
        raise TraceError(trace, 0, "at least one request", "none")
    bounds = [Unbounded(page_size) for _ in range(tenants)]
    ideal = tuple(bounds[request.tenant].hit(request.tokens) for request in chosen)
    return Workload(chosen, ideal, page_size, sum(bound.pages for bound in bounds))
