"""A store that says of every key that it is there, and fails every get."""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict

TEST_PAGES = 3
"""What it keeps of its puts: enough to pass the self-test that lets it be used."""


class Liar:
    """A `BlockingStore`; `gets` counts the reads that it failed."""

    name = "liar"

    def __init__(self) -> None:
        self.gets = 0
        self.pages: dict[bytes, bytes] = {}

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        for number, _ in enumerate(keys):
            on_page(number, Verdict.HIT)

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        if not all(key in self.pages for key in keys):
            self.gets += 1
            raise OSError("no")
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            buffer[:] = self.pages[key]
            on_page(number, Verdict.HIT)

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            if len(self.pages) < TEST_PAGES:
                self.pages[key] = bytes(buffer)
            on_page(number, Verdict.STORED)

    def close(self) -> None:
        pass
