"""A model runner that knows what every KV byte must be: it checks what it reads and writes what it computes.

It owns the counts of compared and wrong bytes. It never chooses slots, and it repairs nothing that it finds
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
import xxhash

from stagehold import Namespace
from stagehold.cache.components.full import SPINE
from stagehold.serving.pattern import Comparison, Layout, Pattern, Slots, Tokens
from stagehold.serving.words import VOCABULARY, scramble


@dataclass(frozen=True, slots=True)
class Work:
    """One request's share of a forward pass.

    `tokens` are the request's tokens from position 0; KV of [first, last) is to be computed, KV before it is
    read, and that from `unread` on for the first time. `reused` leading tokens were promised by the cache.
    `slots` holds the slot of each page, as far as `last`; `others` the same for components beside the tree's own, by
    name, -1 for a page that has none: it must not be read.
    """

    rid: str
    namespace: Namespace
    tokens: Tokens
    first: int
    last: int
    unread: int
    reused: int
    slots: Slots
    others: Mapping[str, Slots] = field(default_factory=dict)

    def pages(self, component: str) -> Slots:
        """The slot of each page of one component; KeyError for one that this work has no pages of."""
        return self.slots if component == SPINE else self.others[component]


class Runner(Protocol):
    """What the scheduler asks of a model."""

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """Compute each work's KV and return the token that follows its last one."""

    def read(self, work: Work) -> None:
        """Read KV without computing any: the last look at a request that ends."""


class KnownPart(Protocol):
    """Known bytes of one component beside the one that carries the tree."""

    def compare(self, work: Work) -> Comparison:
        """Look at all that a forward of this work reads."""

    def write(self, work: Work) -> None:
        """What the forward leaves behind."""


class PatternRunner:
    """Stands for a model on bytes that are a function of (namespace, layer, K or V, token, position).

    `pool` is the engine's device tensor, uint8 [parts, slots, page_part_bytes]; `others` are known bytes of the
    components beside it, see `known_parts`. Their bytes count as its own do, and so do those that are missing.
    """

    def __init__(self, layout: Layout, pool: torch.Tensor, others: Sequence[KnownPart] = ()) -> None:
        self.layout = layout
        self.compared_bytes = 0
        self.wrong_bytes = 0
        self.phantom_tokens = 0
        self._pool = pool
        self._others = others
        self._patterns: dict[Namespace, Pattern] = {}

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """See `Runner.forward`; a later work of a batch may read what an earlier one wrote."""
        answers = []
        for work in batch:
            self.read(work)
            pattern = self._pattern(work.namespace)
            pattern.fill(self._pool, work.slots, work.tokens[work.first : work.last], work.first)
            for part in self._others:
                part.write(work)
            answers.append(_next_token(work.rid, work.last))
        return answers

    def read(self, work: Work) -> None:
        """Compare what is read for the first time, and of other components all that is read.

        Wrong bytes under `reused` tokens make those phantoms.
        """
        if work.unread < work.first:
            tokens = work.tokens[work.unread : work.first]
            self._count(work, self._pattern(work.namespace).compare(self._pool, work.slots, tokens, work.unread))
        for part in self._others:
            self._count(work, part.compare(work))

    def _count(self, work: Work, found: Comparison) -> None:
        self.compared_bytes += found.compared_bytes
        self.wrong_bytes += found.wrong_bytes
        self.phantom_tokens += sum(position < work.reused for position in found.wrong_positions)

    def _pattern(self, namespace: Namespace) -> Pattern:
        pattern = self._patterns.get(namespace)
        if pattern is None:
            pattern = self._patterns[namespace] = Pattern(self.layout, repr(namespace))
        return pattern


def _next_token(rid: str, position: int) -> int:
    """The answer's token at `position`: fixed for a request, so that a retracted one says the same again."""
    word = np.array([xxhash.xxh3_64_intdigest(rid.encode()) ^ position], dtype=np.uint64)
    return int(scramble(word)[0]) % VOCABULARY
