"""What a World knows about its requests and pages by itself, without asking the engine.

Owns the expectation that everything is compared with. It never looks at the tree, at a pool or at a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from stagehold.cache.components.full import SPINE
from stagehold.cache.keys import Chain, object_name
from stagehold.lifecycle.data import Handle
from stagehold.specs.config import EngineConfig
from stagehold.testing.content import Kv, spread, words_of

REMEMBERED_CHAINS = 64
"""Sequences that are looked up in the tree at rest; older ones have mostly been evicted."""


@dataclass(frozen=True, slots=True)
class Known:
    """One component as its bytes are known: `parts` of them, a page at a time or one state for all that is computed.

    A forward at token n reads the pages from `reach(n)` on. `gates`: whether nothing of that may be missing.
    """

    name: str
    parts: int
    per_page: bool
    gates: bool
    window_pages: int | None
    page_size: int

    def reach(self, computed: int) -> int:
        """The first token that a forward behind `computed` tokens may read: windows are kept in whole pages."""
        if self.window_pages is None:
            return 0
        return max(0, computed // self.page_size - self.window_pages) * self.page_size

    def body(self, kv: Kv, page: int) -> bytes:
        """What is stored of a page: its tokens' bytes, or the state behind its last one."""
        start, end = page * self.page_size, (page + 1) * self.page_size
        return np.ascontiguousarray(kv[:, start if self.per_page else end - 1 : end]).tobytes()

    def belief(self, page_key: bytes) -> bytes:
        """What beliefs call its page."""
        return page_key if self.name == SPINE else page_key + self.name.encode()


def known_of(config: EngineConfig) -> tuple[Known, ...]:
    """All components of an engine, the one that carries the tree first."""
    size = config.page_size
    spine = Known(SPINE, config.parts, per_page=True, gates=True, window_pages=None, page_size=size)
    others = [
        Known(
            one.name,
            one.parts,
            per_page=one.windowed,
            gates=one.gates,
            window_pages=one.window_pages(size) if one.windowed else None,
            page_size=size,
        )
        for one in config.components
    ]
    return (spine, *others)


@dataclass(slots=True, eq=False)
class Guest:
    """One live request: `prompt` tokens to compute before it answers, `computed` ones whose KV is written.

    `kv` has the right bytes of each component, a column for each token. `strayed` names the components whose state it
    could not begin with: what it computes there is no state of its prefix.
    """

    handle: Handle
    chain: Chain
    prompt: int
    answer: int
    known: Sequence[Known]
    kv: dict[str, Kv] = field(repr=False, default_factory=dict)
    computed: int = 0
    running: bool = False
    skipped_at: int | None = None
    strayed: set[str] = field(default_factory=set)

    @classmethod
    def arrived(cls, handle: Handle, chain: Chain, answer: int, known: Sequence[Known]) -> Self:
        """A request that waits, all of whose tokens so far are its prompt."""
        guest = cls(handle, chain, chain.n_tokens, answer, known)
        guest.learn()
        return guest

    def learn(self) -> None:
        """Know the right bytes of all its tokens."""
        words = words_of(self.chain.root_key, self.chain.tokens)
        self.kv = {one.name: spread(words, one.parts, one.name) for one in self.known}

    def say(self, token: int) -> None:
        """One more token of the answer is known."""
        self.chain.extend([token])
        self.learn()


@dataclass(slots=True)
class Library:
    """Every page of every component that anybody may have computed: its object name and its right bytes."""

    page_size: int
    known: Sequence[Known]
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    beliefs: dict[bytes, bytes] = field(default_factory=dict)
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
        words = words_of(chain.root_key, chain.tokens[:whole])
        for one in self.known:
            kv = spread(words, one.parts, one.name)
            for page in range(chain.n_pages):
                name = self.name(chain, page, one.name)
                self.bodies.setdefault(name, one.body(kv, page))
                self.beliefs.setdefault(name, one.belief(chain.page_key(page)))

    def name(self, chain: Chain, page: int, component: str = SPINE) -> bytes:
        """The object name of one page."""
        return object_name(chain.page_key(page), component=component)

    def body(self, chain: Chain, page: int, component: str = SPINE) -> bytes:
        """The right bytes of one page, or of the checkpoint at its end."""
        return self.bodies[self.name(chain, page, component)]

    def pick(self, which: int) -> Chain | None:
        """A sequence by number, modulo how many there are; None before the first one."""
        chains = list(self.chains.values())
        return chains[which % len(chains)] if chains else None
