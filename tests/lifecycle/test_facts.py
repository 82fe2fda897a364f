"""The vector that a tick exchanges: what goes in comes out, least and most over the ranks."""

from __future__ import annotations

import numpy as np
import pytest

from stagehold.lifecycle.facts import Capacity, differing, pack, unpack

OPERATIONS = np.arange(12, dtype=np.int64)


@pytest.mark.parametrize(("component", "left"), [(0, (1, 3)), (1, (4, 5)), (2, (6, 7)), (3, (8, 9))])
def test_each_component_has_a_pair_of_its_own(component: int, left: tuple[int, int]) -> None:
    """Staging and device; the first has its pins between them."""
    assert left == Capacity(*range(1, 10)).of(component)


def test_least_and_most_come_out_of_one_minimum() -> None:
    """Of two ranks that recorded the same and have different things left."""
    poor, rich = Capacity(*range(1, 10)), Capacity(9, 1, 8, 1, 7, 1, 6, 1, 5)
    agreed = unpack(np.minimum(*(pack(OPERATIONS, b"same", one, mark=7) for one in (poor, rich))))

    assert agreed.same
    assert tuple(map(min, poor, rich)) == tuple(agreed.least)
    assert tuple(map(max, poor, rich)) == tuple(agreed.most)
    assert OPERATIONS.tolist() == agreed.operations.tolist()


@pytest.mark.parametrize("other", [pack(OPERATIONS, b"same", mark=8), pack(OPERATIONS, b"some", mark=7)])
def test_another_digest_or_another_mark_is_not_the_same(other: np.ndarray) -> None:
    """And who knows of a difference can say so."""
    mine = pack(OPERATIONS, b"same", mark=7)

    assert unpack(np.minimum(mine, mine)).same
    assert not unpack(np.minimum(mine, other)).same
    assert not unpack(np.minimum(mine, differing(mine))).same
