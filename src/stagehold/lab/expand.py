"""Turns a trace's block ids into token ids, at full size or shrunk.

The same block id gives the same tokens wherever it stands, so prefixes are shared exactly as in the trace.
A shrunk block keeps its id and has fewer tokens; answers and partial blocks shrink alike, never to nothing. Tokens
behind the last block are their request's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stagehold.lab.traces import BLOCK_TOKENS, TraceRequest
from stagehold.serving.pattern import Tokens
from stagehold.serving.words import VOCABULARY, Words, scramble

OWN = np.uint64(0xA0761D6478BD642F)
"""Keeps the words of what only one request has apart from those of blocks."""


class ScaleError(ValueError):
    """Blocks that a scale would cut in pieces."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many tokens stand for 512 of the trace; 512 leaves every length as it is."""

    block_tokens: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.block_tokens <= BLOCK_TOKENS:
            raise ValueError(f"a block is replayed as 1 to {BLOCK_TOKENS} tokens, not {self.block_tokens}")

    def length(self, tokens: int) -> int:
        """ceil(tokens x block_tokens / 512): whole blocks stay whole, and something never becomes nothing."""
        return -(-tokens * self.block_tokens // BLOCK_TOKENS)

    def block(self, tokens: int) -> int:
        """Tokens that stand for a block of so many; `ScaleError` where that is no whole number."""
        if tokens * self.block_tokens % BLOCK_TOKENS:
            raise ScaleError(
                f"blocks of {tokens} tokens cannot be replayed at {self.block_tokens} for {BLOCK_TOKENS}: expected a "
                f"scale by which {tokens} x scale / {BLOCK_TOKENS} is a whole number, such as {BLOCK_TOKENS}"
            )
        return self.length(tokens)

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
    """Replayable requests in trace order. Every prompt and every answer has at least one token.

    A conversation belongs to one of `tenants` by its second block; the first one is everybody's system prompt. A
    line that is not the first to bear its number (a session is a line, in some formats) has its place in its name.
    """
    names: dict[int, int] = {}
    for request in requests:
        place = names[request.line] = names.get(request.line, 0) + 1
        name = f"line-{request.line}" if place == 1 else f"line-{request.line}.{place}"
        answer = max(1, scale.length(request.output_tokens))
        tenant = (request.blocks[:2][-1] if request.blocks else request.line) % tenants
        yield ReplayRequest(name, request.arrival_ms, prompt_of(request, scale, place), answer, tenant)


def prompt_of(request: TraceRequest, scale: Scale, place: int = 1) -> Tokens:
    """Token ids of a prompt; `place` tells requests of one line apart. `ScaleError` for blocks that do not divide."""
    length = max(1, scale.length(request.prompt_tokens))
    positions = np.arange(scale.block(request.block_tokens) if request.blocks else 0, dtype=np.uint64)
    words = (np.array(request.blocks, dtype=np.uint64)[:, None] << np.uint64(10)) + positions
    tokens = _tokens(words.ravel())[:length]
    own = np.arange(len(tokens), length, dtype=np.uint64) + (np.uint64(place) << np.uint64(32))
    line = scramble(np.array([request.line], dtype=np.uint64)) ^ OWN
    return np.concatenate((tokens, _tokens(scramble(own) ^ line))) if len(own) else tokens


def _tokens(words: Words) -> Tokens:
    return (scramble(words) % np.uint64(VOCABULARY)).astype(np.uint32)


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
