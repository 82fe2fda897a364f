"""Waiting calls over stores that return at once."""

from __future__ import annotations

import pytest

from stagehold.adapters.waiting import Waiting
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Verdict

KEYS = [bytes([index]) * 32 for index in range(10)]


def buffers(fill: int) -> list[memoryview]:
    return [memoryview(bytearray([fill + index]) * 64) for index in range(len(KEYS))]


@pytest.mark.parametrize("most", [1, 3, 10, 64])
def test_verdicts_come_in_the_order_of_the_keys(most: int) -> None:
    """However a call is cut; here over a store that counts ticks and takes its time."""
    store = Waiting(open_store("sim:?seed=3&exists=1-4&get=1-4&put=1-4", 64), most)
    assert [Verdict.STORED] * 5 == store.put(KEYS[:5], buffers(1)[:5])
    assert [Verdict.HIT] * 5 + [Verdict.MISS] * 5 == store.exists(KEYS)
    targets = buffers(100)
    found = store.get_into(KEYS, targets)
    assert [Verdict.HIT] * 5 == found[:5]
    assert Verdict.HIT not in found[5:]
    assert [bytes([1 + index]) * 64 for index in range(5)] == [bytes(target) for target in targets[:5]]
    assert [] == store.exists([])
    store.close()
    with pytest.raises(RuntimeError, match="is closed"):
        store.exists(KEYS)


def test_nonsense_is_refused() -> None:
    """Operations without a key would never end."""
    with pytest.raises(ValueError, match="operations of 0 keys: expected at least 1"):
        Waiting(open_store("sim:", 64), 0)
