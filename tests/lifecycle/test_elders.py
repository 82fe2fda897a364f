"""A large hold that smaller ones pass is not passed for ever: then all of staging is kept for it."""

from __future__ import annotations

import pytest

from stagehold.lifecycle.holds import PASSES_BEFORE_ELDERS_FIRST
from stagehold.specs.hold import HoldState

STAGING = 32
IN_ONE_EXCHANGE = 16


@pytest.mark.parametrize("passes", [PASSES_BEFORE_ELDERS_FIRST - 1, PASSES_BEFORE_ELDERS_FIRST])
def test_staging_is_kept_for_whoever_was_passed_too_often(hand, passes):
    """One pass less, and the next small hold takes what is free; from then on it waits behind the large one."""
    h = hand(
        staging_pages=STAGING,
        device_pages=128,
        largest_request_tokens=1024,
        operation_window=IN_ONE_EXCHANGE,
        prefetch_threshold_tokens=16,
    )
    # A lookup that finds nothing takes a place in the exchange, too: the last one waits for the next.
    sizes = [4, STAGING, *[1] * passes, *[0] * (IN_ONE_EXCHANGE - 2 - passes), 1]
    prompts = [h.prompt(max(1, pages), family) for family, pages in enumerate(sizes, start=1)]
    for prompt, pages in zip(prompts, sizes, strict=True):
        if pages:
            h.put(prompt)
    first, large, *small, last = [h.arrive(f"r{at}", prompt) for at, prompt in enumerate(prompts)]
    h.tick(3)
    waits = passes == PASSES_BEFORE_ELDERS_FIRST

    assert HoldState.PARKED is h.hold_of(large).state
    assert passes + (not waits) == h.hold_of(large).data.passed
    assert (HoldState.PARKED if waits else HoldState.FETCHING) is h.hold_of(last).state
    for handle in (first, *small[:passes]):
        h.engine.abort(handle)
    h.tick()
    assert (HoldState.FETCHING if waits else HoldState.PARKED) is h.hold_of(large).state
