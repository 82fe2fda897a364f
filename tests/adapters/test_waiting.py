"""Waiting calls over stores that return at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from stagehold.adapters.waiting import Waiting
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict
from stagehold.cache.stores.workers import WorkerStore

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


class Slow:
    """A `BlockingStore` that stays in `get_into` until it is let go."""

    name = "slow"

    def __init__(self) -> None:
        self.begun, self.go_on, self.left = threading.Event(), threading.Event(), threading.Event()

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        raise OSError("never asked")

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        raise OSError("never asked")

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        self.begun.set()
        assert self.go_on.wait(20)
        self.left.set()
        on_page(0, Verdict.HIT)

    def close(self) -> None:
        """Nothing is held."""


def test_a_call_under_way_at_the_end_keeps_its_buffers_until_the_store_is_out_of_them() -> None:
    """Then it raises. Who closes a second time waits for nothing."""
    slow = Slow()
    store = Waiting(WorkerStore(slow))
    told: list[str] = []

    def ask() -> None:
        try:
            store.get_into(KEYS[:1], buffers(1)[:1])
        except RuntimeError as error:
            told.append(f"{error}, left: {slow.left.is_set()}")

    asks, closes = threading.Thread(target=ask), threading.Thread(target=store.close)
    asks.start()
    assert slow.begun.wait(20)
    closes.start()
    asks.join(0.3)
    assert asks.is_alive(), "the store is still in the buffers"
    store.close()
    slow.go_on.set()
    for thread in (asks, closes):
        thread.join(20)
    assert ["store slow was closed meanwhile, left: True"] == told
