"""Turns a trace's block ids into token ids, at full size or shrunk.

The same block id gives the same tokens wherever it stands, so prefixes are shared exactly as in the trace.
A shrunk block keeps its id and has fewer tokens; answers and partial blocks shrink alike, never to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stagehold.lab.traces import BLOCK_TOKENS, TraceRequest
from stagehold.serving.pattern import Tokens
from stagehold.serving.words import VOCABULARY, scramble


@dataclass(frozen=True, slots=True)
class Scale:
    """How many tokens stand for one trace block of 512; 512 leaves every length as it is."""

    block_tokens: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.block_tokens <= BLOCK_TOKENS:
            raise ValueError(f"a block is replayed as 1 to {BLOCK_TOKENS} tokens, not {self.block_tokens}")

    def length(self, tokens: int) -> int:
        """ceil(tokens x block_tokens / 512): whole blocks stay whole, and something never becomes nothing."""
        return -(-tokens * self.block_tokens // BLOCK_TOKENS)

    def __str__(self) -> str:
        if self.block_tokens == BLOCK_TOKENS:
            return "lengths as in the trace"
        return f"lengths scaled: a block of {BLOCK_TOKENS} tokens is replayed as {self.block_tokens}"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request as it is submitted: name, arrival in trace milliseconds, prompt, length of the answer, tenant."""

    rid: str
    arrival_ms: int
    tokens: Tokens
    output_tokens: int
    tenant: int = 0


def expand(requests: Iterable[TraceRequest], scale: Scale, tenants: int = 1) -> Iterator[ReplayRequest]:
    """Replayable requests in trace order. Every answer has at least one token: a request must run to end.

    A conversation belongs to one of `tenants` by its second block; the first one is everybody's system prompt.
    """
    blocks = _BlockTokens(scale.block_tokens)
    for request in requests:
        tokens = np.concatenate([blocks[b] for b in request.blocks])[: scale.length(request.prompt_tokens)]
        answer = max(1, scale.length(request.output_tokens))
        tenant = request.blocks[:2][-1] % tenants
        yield ReplayRequest(f"line-{request.line}", request.arrival_ms, tokens, answer, tenant)


class _BlockTokens(dict[int, Tokens]):
    """Token ids of each block seen so far, made at first use."""

    def __init__(self, block_tokens: int) -> None:
        super().__init__()
        self._positions = np.arange(block_tokens, dtype=np.uint64)

    def __missing__(self, block: int) -> Tokens:
        words = self._positions + (np.uint64(block) << np.uint64(10))
        tokens = self[block] = (scramble(words) % np.uint64(VOCABULARY)).astype(np.uint32)
        return tokens


class Unbounded:
    """What a cache that never forgets would hit: the upper bound that a replay is measured against.

    `hit` counts the leading whole pages of a prompt that an earlier prompt had, and at least one token is
    always left to compute. It keeps one entry per distinct page chain and looks at nothing of the engine.
    """

    def __init__(self, page_size: int) -> None:
        self._page = page_size
        self._children: dict[tuple[int, bytes], int] = {}

    @property
    def pages(self) -> int:
        """Distinct whole pages seen: the working set."""
        return len(self._children)

    def hit(self, tokens: Tokens) -> int:
        """Tokens of `tokens` found before, after which its own pages count as seen."""
        node = 0
        found = 0
        whole = len(tokens) // self._page
        for page in range(whole):
            edge = (node, tokens[page * self._page : (page + 1) * self._page].tobytes())
            child = self._children.get(edge)
            if child is None:
                child = self._children[edge] = len(self._children) + 1
            elif found == page:
                found += 1
            node = child
        return min(found, (len(tokens) - 1) // self._page) * self._page
