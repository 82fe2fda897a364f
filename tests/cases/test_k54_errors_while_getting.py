"""K54: a get failed under a connector of several stores, with "recompute" set, and the text was garbled.

The error was seen by one layer and not by the one that counted tokens. Here there is one store behind the engine, its
workers turn every exception into a verdict, and only a verified page is ever counted.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.workers import WorkerStore
from stagehold.testing.service import Service


class Memory:
    """Pages in a dictionary; every `every`-th get raises at its third page, after it has written a part of it."""

    name = "memory"

    def __init__(self, every: int, error: Exception) -> None:
        self.pages: dict[bytes, bytes] = {}
        self.error, self.every, self.gets = error, every, 0

    def exists(self, keys, on_page):
        for key in keys:
            on_page(0, Verdict.HIT if key in self.pages else Verdict.MISS)

    def put(self, keys, buffers, on_page):
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            self.pages[key] = bytes(buffer)
            on_page(number, Verdict.STORED)

    def get_into(self, keys, buffers, on_page):
        self.gets += 1
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            if self.gets % self.every == 0 and number == 2:
                buffer[: len(buffer) // 2] = b"?" * (len(buffer) // 2)
                raise self.error
            found = self.pages.get(key)
            if found is not None:
                buffer[:] = found
            on_page(number, Verdict.HIT if found is not None else Verdict.MISS)

    def close(self):
        pass


@pytest.mark.parametrize("error", [OSError("the connection was reset"), KeyError("no such shard"), MemoryError()])
@pytest.mark.parametrize("every", [2, 3])
def test_whatever_a_get_raises_the_model_reads_its_own_bytes(error, every):
    """Three waves of the same prompts with an empty device each time; all finish, and no byte is wrong."""
    memory = Memory(every, error)
    with Service(WorkerStore(memory, workers=2), page_bytes=1024, suspect_window=1, retry_interval_ticks=2) as service:
        service.attach()
        for _ in range(3):
            service.serve(range(4))
            service.drain()
            service.engine._parts.core.tree.evict(10**6)
        assert memory.gets >= 6
        assert [] == service.breaches()
        assert service.served.store_hit_tokens > 0
