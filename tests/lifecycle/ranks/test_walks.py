"""Random walks of Worlds that are ranks of one group: skew, loss, slow and failing stores, and nobody drifts."""

from __future__ import annotations

from collections import Counter

import pytest

from stagehold.testing.mixes import PAIRWISE, Mix, mixed
from stagehold.testing.ranks import Walked, walk_as_ranks
from stagehold.testing.shapes import WorldShape

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
