"""Staging that is kept for a hold that was passed too often: of every component that it brings."""

from __future__ import annotations

import pytest

from stagehold.lifecycle.holds import PASSES_BEFORE_ELDERS_FIRST
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import HostMode

WINDOW = 16
"""Pages. Staging has room for two windows; that of full attention for everybody."""
IN_ONE_EXCHANGE = 16


@pytest.mark.parametrize("passes", [PASSES_BEFORE_ELDERS_FIRST - 1, PASSES_BEFORE_ELDERS_FIRST])
def test_staging_of_a_window_is_kept_too(mixed, passes):
    """One pass less, and the next small hold takes what is free; from then on it waits behind the large one."""
    h = mixed(
        "w",
        parts={"window": WINDOW * 16, "staging": 2 * WINDOW, "device": 128},
        host_memory_mode=HostMode.CACHE,  # the other mode fetches nothing that is shorter than a window
        staging_pages=256,
        device_pages=128,
        largest_request_tokens=1024,
        operation_window=IN_ONE_EXCHANGE,
    )
    # A lookup that finds nothing takes a place in the exchange, too: the last one waits for the next.
    sizes = [WINDOW, 4, WINDOW, *[1] * passes, *[0] * (IN_ONE_EXCHANGE - 3 - passes), 1]
    prompts = [h.prompt(max(1, pages), family) for family, pages in enumerate(sizes, start=1)]
    for prompt, pages in zip(prompts, sizes, strict=True):
        h.put_all(prompt, 0, pages)
    first, second, large, *small, last = [h.arrive(f"r{at}", prompt) for at, prompt in enumerate(prompts)]
    h.tick(3)
    waits = passes == PASSES_BEFORE_ELDERS_FIRST

    assert HoldState.PARKED is h.hold_of(large).state
    assert passes + (not waits) == h.hold_of(large).data.passed
    assert (HoldState.PARKED if waits else HoldState.FETCHING) is h.hold_of(last).state
    for handle in (first, second, *small[:passes]):
        h.engine.abort(handle)
    h.tick()
    assert HoldState.FETCHING is h.hold_of(large).state
