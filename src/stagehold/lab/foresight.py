"""The future of a trace: which request uses a page next. It is what an eviction by Belady's rule asks for.

It owns one list of requests per page that a prompt can reuse, and which of them have been admitted. A request that
waits is still to come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stagehold import Chain

NEVER = 1 << 62


class Future:
    """The uses of every page, by its key; requests have numbers in order of arrival, from 0."""

    def __init__(self, prompts: Iterable[Chain]) -> None:
        uses: defaultdict[bytes, list[int]] = defaultdict(list)
        count = 0
        for count, chain in enumerate(prompts, start=1):
            for page in range((chain.n_tokens - 1) // chain.page_size):
                uses[chain.page_key(page)].append(count - 1)
        self._uses = {key: numbers[::-1] for key, numbers in uses.items()}
        self._admitted = bytearray(count)

    def admitted(self, number: int) -> None:
        """A request has begun to run: it uses its pages now."""
        self._admitted[number] = 1

    def next_use(self, key: bytes) -> int:
        """Number of the next request that uses the page of this key; NEVER if none does."""
        numbers = self._uses.get(key)
        while numbers:
            if not self._admitted[numbers[-1]]:
                return numbers[-1]
            numbers.pop()
        return NEVER
