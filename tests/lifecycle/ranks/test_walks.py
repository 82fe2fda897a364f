"""Random walks of Worlds that are ranks of one group: skew, loss, slow and failing stores, and nobody drifts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from stagehold import EngineConfig, HostMode
from stagehold.testing.mixes import PAIRWISE, Mix, mixed
from stagehold.testing.ranks import Walked, walk_as_ranks
from stagehold.testing.shapes import WorldShape, drawn

SEEDS = 12
ACTS = 120


def walked(size: int, seed: int, acts: int, shape: WorldShape | None = None) -> Walked:
    """One walk of all ranks; everything has ended, and every rank says the same of it."""
    group, ranks = walk_as_ranks(size, seed, acts, shape)
    assert 1 == len({rank.digest for rank in ranks}), seed
    assert all(rank == ranks[0] for rank in ranks), seed
    assert 0 == group.gathers
    return ranks[0]


def test_eight_ranks_that_misbehave_in_their_own_ways_stay_equal() -> None:
    """And it was worth it: bytes were spliced, fetches fell short on some rank, requests ended in several ways."""
    ends: Counter[str] = Counter()
    for seed in range(SEEDS):
        found = walked(8, seed, ACTS)
        ends.update(found.ends)
        ends.update(spliced=found.spliced, failed=found.failed)
    assert ends["finished"] > SEEDS
    assert ends["aborted"] > 0
    assert ends["spliced"] > 0
    assert ends["failed"] > 0


def test_ranks_with_windows_and_checkpoints_stay_equal() -> None:
    """Where a hit may end is agreed on by all ranks, whatever each of them has of windows; six combinations."""
    spliced = sum(walked(3, 1, 70, mixed(1, mix)).spliced for mix in PAIRWISE[::2])
    assert spliced > 0


def test_ranks_whose_host_memory_serves_alone_stay_equal() -> None:
    """No store to agree about: when each rank's copies end is all that differs, and what host memory has does not."""
    mixes = [mix for mix in PAIRWISE if mix.mode is HostMode.CACHE]
    shapes = [mixed(seed, mix) for seed, mix in enumerate(mixes[:3])] + [drawn_cache(seed) for seed in range(3, 7)]
    assert 0 < sum(walked(2, seed, 120, replace(shape, alone=True)).spliced for seed, shape in enumerate(shapes))


def drawn_cache(seed: int) -> WorldShape:
    """The shape of a seed in `cache` mode, with full attention alone."""
    shape = drawn(seed)
    options = shape.config.model_dump() | {"host_memory_mode": HostMode.CACHE}
    return replace(shape, config=EngineConfig.model_validate(options))


@pytest.mark.soak
@pytest.mark.parametrize("mix", PAIRWISE, ids=str)
def test_every_pair_of_kinds_and_sizes_stays_equal(mix: Mix) -> None:
    """Ten seeds of each."""
    for seed in range(10):
        walked(4, seed, 120, mixed(seed, mix))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_two_hundred_seeds_of_eight_ranks(first: int) -> None:
    """No divergence, no hang, every request ends."""
    for seed in range(first, first + 20):
        walked(8, seed, 150)
