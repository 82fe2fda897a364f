"""What a World knows about its requests and pages by itself, without asking the engine.

Owns the expectation that everything is compared with. It never looks at the tree, at a pool or at a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from stagehold.cache.components.full import FULL
from stagehold.cache.keys import Chain, object_name
from stagehold.lifecycle.data import Handle
from stagehold.testing.content import TOKEN_BYTES, Kv, kv_of

REMEMBERED_CHAINS = 64
"""Sequences that are looked up in the tree at rest; older ones have mostly been evicted."""


@dataclass(slots=True, eq=False)
class Guest:
    """One live request: `prompt` tokens to compute before it answers, `computed` ones whose KV is written."""

    handle: Handle
    chain: Chain
    prompt: int
    answer: int
    kv: Kv = field(repr=False)
    computed: int = 0
    running: bool = False
    skipped_at: int | None = None

    @classmethod
    def arrived(cls, handle: Handle, chain: Chain, answer: int, parts: int) -> Self:
        """A request that waits, all of whose tokens so far are its prompt."""
        return cls(handle, chain, chain.n_tokens, answer, kv_of(chain.root_key, chain.tokens, parts))

    def say(self, token: int) -> None:
        """One more token of the answer is known."""
        self.chain.extend([token])
        self.kv = kv_of(self.chain.root_key, self.chain.tokens, self.kv.shape[0])


@dataclass(slots=True)
class Library:
    """Every page that anybody may have computed: its object name and its right bytes."""

    page_size: int
    parts: int
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    chains: dict[bytes, Chain] = field(default_factory=dict)

    def learn(self, chain: Chain) -> None:
        """Enter all whole pages of a sequence."""
        whole = chain.n_pages * self.page_size
        key = chain.root_key + chain.tokens[:whole].tobytes()
        if not whole or key in self.chains:
            return
        self.chains[key] = Chain(chain.namespace, chain.tokens[:whole].copy(), self.page_size)
        if len(self.chains) > REMEMBERED_CHAINS:
            del self.chains[next(iter(self.chains))]
        kv = kv_of(chain.root_key, chain.tokens[:whole], self.parts)
        for page in range(chain.n_pages):
            self.bodies.setdefault(self.name(chain, page), self._body(kv, page))

    def _body(self, kv: Kv, page: int) -> bytes:
        return np.ascontiguousarray(kv[:, page * self.page_size : (page + 1) * self.page_size]).tobytes()

    def name(self, chain: Chain, page: int) -> bytes:
        """The object name of one page."""
        return object_name(chain.page_key(page), component=FULL)

    def body(self, chain: Chain, page: int) -> bytes:
        """The right bytes of one page: parts x page_size x TOKEN_BYTES of them."""
        return self.bodies[self.name(chain, page)]

    def pick(self, which: int) -> Chain | None:
        """A sequence by number, modulo how many there are; None before the first one."""
        chains = list(self.chains.values())
        return chains[which % len(chains)] if chains else None

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return self.parts * self.page_size * TOKEN_BYTES
