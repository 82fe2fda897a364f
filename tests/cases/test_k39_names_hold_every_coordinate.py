"""K39: ranks with different bytes shared one file key and overwrote each other.

Here a page's name is made of its key, component and rank coordinates, its header says component and coordinates
once more, and a reader with other coordinates gets a miss.
"""

from __future__ import annotations

import itertools

import pytest

from stagehold.cache.keys import RankCoordinates, object_name
from stagehold.cache.stores.page import Layout
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import Medium, SimulatedStore
from stagehold.testing.hand import AT_ONCE

KEY = b"p" * 32
RANKS = [
    RankCoordinates(*at)
    for at in itertools.product((0, 1), (1, 2, 4), (0, 1), (1, 2))
    if at[0] < at[1] and at[2] < at[3]
]


def test_no_two_ranks_or_components_have_a_name_in_common() -> None:
    """Nor do two groups of another size: their shards have other bytes."""
    names = {object_name(KEY, component=component, at=at) for component in ("full", "swa", "state") for at in RANKS}
    assert len(names) == 3 * len(RANKS)


def test_ranks_that_write_the_same_prefix_at_once_keep_their_own_bytes() -> None:
    """Four ranks, one medium, the same page key: each reads what it wrote."""
    medium, ranks = Medium(), [RankCoordinates(rank, 4) for rank in range(4)]
    stores = [SimulatedStore(delays=AT_ONCE, medium=medium) for _ in ranks]
    for rank, store in enumerate(stores):
        store.put(1, [object_name(KEY, component="full", at=ranks[rank])], [memoryview(bytes([rank] * 64))], 0)
    outs = [memoryview(bytearray(64)) for _ in ranks]
    for rank, store in enumerate(stores):
        store.poll(1)
        store.get_into(2, [object_name(KEY, component="full", at=ranks[rank])], [outs[rank]], 1)
        assert [progress.good for progress in store.poll(2)] == [1]
    assert [bytes(out) for out in outs] == [bytes([rank] * 64) for rank in range(4)]


@pytest.mark.parametrize(
    "reader",
    [
        Layout(tensor_rank=1, tensor_size=2),
        Layout(tensor_size=4),
        Layout(tensor_size=2, pipeline_rank=1, pipeline_size=2),
        Layout(component=1, tensor_size=2),
    ],
)
def test_a_name_that_misses_a_coordinate_is_caught_by_the_header(reader: Layout) -> None:
    """Should two ranks ever ask for one name, the page says whose it is: FOREIGN, never a hit."""
    medium = Medium()
    writer = SimulatedStore(delays=AT_ONCE, medium=medium, layout=Layout(tensor_size=2))
    writer.put(1, [KEY], [memoryview(bytes(64))], 0)
    writer.poll(1)
    store = SimulatedStore(delays=AT_ONCE, medium=medium, layout=reader)
    store.get_into(2, [KEY], [memoryview(bytearray(64))], 1)
    assert [progress.verdicts for progress in store.poll(2)] == [(Verdict.FOREIGN,)]
