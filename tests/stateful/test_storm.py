"""Two thousand requests in a storm of evictions, splits and sibling inserts: no wedge, no leak, everybody ends."""

from __future__ import annotations

import pytest

from stagehold.testing.storm import Storm
from stagehold.testing.world import World

REQUESTS = 2_000


@pytest.fixture(scope="module")
def after() -> World:
    """The World when all have ended; the checks of every act, and those at rest, have passed by then."""
    return Storm(1, REQUESTS).run()


def test_every_request_ends(after: World) -> None:
    """Whoever arrived has finished or was aborted, and whoever was sent back has come again."""
    assert REQUESTS == after.arrivals == after.ends["finished"] + after.ends["aborted"]
    assert [] == after.guests


def test_nothing_is_owned_after_the_storm(after: World) -> None:
    """The link to the store is all that is left, and no machine is alive."""
    assert {"link": 1} == after.engine.stats().owned
    assert 0 == after.engine.stats().live_machines


def test_the_storm_met_what_it_is_for(after: World) -> None:
    """Anchors were lost, siblings covered each other, tails were trimmed, and holds were spliced all the same."""
    stats = after.engine.stats()

    assert 0 < min(stats.losses[loss] for loss in ("lost", "covered", "trimmed", "aborted"))
    assert 0 < stats.spliced
    assert 100 < stats.state_entries["request.anchor_locked"]
