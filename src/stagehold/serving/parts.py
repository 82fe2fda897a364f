"""Known bytes of components beside the one that carries the tree: windows, read as far as they reach, and states.

Owns the function of each kind and what a forward reads of it. A window's bytes are a function of (namespace,
component, layer, K or V, token, position); a state's of the namespace and every token before it.
"""

from __future__ import annotations

import numpy as np
import torch
import xxhash

from stagehold import ComponentConfig, Engine, Namespace
from stagehold.serving.pattern import WORD, Comparison, Layout, Pattern, Slots, Tokens
from stagehold.serving.runner import KnownPart, Work
from stagehold.serving.words import scramble


def known_parts(engine: Engine) -> list[KnownPart]:
    """Known bytes of every component of an engine that has tensors; for `PatternRunner`."""
    found: list[KnownPart] = []
    for config in engine.config.components:
        tensors = engine.component_bytes(config.name)
        if tensors is None:
            raise ValueError(f"component {config.name!r} has no tensors: set its parts and page_part_bytes")
        if config.windowed:
            found.append(WindowPart(config, engine.config.page_size, tensors.tensor))
        else:
            found.append(StatePart(config, tensors.tensor))
    return found


class WindowPart:
    """A sliding window in `pool`, uint8 [parts, slots, page_part_bytes]; its parts are layers x (K, V)."""

    def __init__(self, config: ComponentConfig, page_size: int, pool: torch.Tensor) -> None:
        if config.parts % 2 or config.page_part_bytes % (page_size * WORD):
            raise ValueError(
                f"component {config.name!r}: expected an even number of parts, and page_part_bytes a multiple of "
                f"{page_size} x {WORD}, got {config.parts} and {config.page_part_bytes}"
            )
        self._config = config
        self._layout = Layout(config.parts // 2, config.page_part_bytes // page_size, page_size)
        self._pool = pool
        self._patterns: dict[Namespace, Pattern] = {}

    def compare(self, work: Work) -> Comparison:
        """The window before the first token, whole pages; a page without a slot is wrong where hits wait for it."""
        size, first = self._layout.page_size, work.first
        start = max(0, first // size - self._config.window_pages(size)) * size
        slots = work.pages(self._config.name)
        compared = wrong = 0
        positions: list[int] = []
        for at in range(start, first, size):
            end = min(first, at + size)
            if slots[at // size] >= 0:
                found = self._pattern(work.namespace).compare(self._pool, slots, work.tokens[at:end], at)
            elif self._config.gates:
                lost = (end - at) * self._layout.token_bytes
                found = Comparison(lost, lost, tuple(range(at, end)))
            else:
                continue
            compared, wrong = compared + found.compared_bytes, wrong + found.wrong_bytes
            positions += found.wrong_positions
        return Comparison(compared, wrong, tuple(positions))

    def write(self, work: Work) -> None:
        """The bytes of what was computed. Raises ValueError where a page of it has no slot."""
        slots, size = work.pages(self._config.name), self._layout.page_size
        placeless = np.flatnonzero(slots[work.first // size : -(-work.last // size)] < 0)
        if placeless.size:
            page = work.first // size + int(placeless[0])
            raise ValueError(f"{work.rid}: page {page} is computed, and has no slot of {self._config.name!r}")
        self._pattern(work.namespace).fill(self._pool, slots, work.tokens[work.first : work.last], work.first)

    def _pattern(self, namespace: Namespace) -> Pattern:
        pattern = self._patterns.get(namespace)
        if pattern is None:
            pattern = self._patterns[namespace] = Pattern(self._layout, f"{self._config.name} {namespace!r}")
        return pattern


class StatePart:
    """A recurrent state in the one slot that a request computes in, of `pool`, uint8 [parts, slots, bytes].

    A state that gates no hit may be missing at its beginning; what is computed from there is no state of the prefix,
    and is made to look like none.
    """

    def __init__(self, config: ComponentConfig, pool: torch.Tensor) -> None:
        self._config = config
        self._pool = pool
        self._strays: set[str] = set()

    def compare(self, work: Work) -> Comparison:
        """The state behind all tokens before the first one; nothing where there are none."""
        if not work.first:
            return Comparison(0, 0, ())
        right = self.expected(work.namespace, work.tokens[: work.first])
        wrong = int((self._pool[:, self._slot(work)].cpu() != right).sum())
        if not self._config.gates:
            if work.first == work.reused and work.unread < work.first:
                (self._strays.add if wrong else self._strays.discard)(work.rid)
            if work.rid in self._strays:
                return Comparison(0, 0, ())
        return Comparison(right.numel(), wrong, (work.first - 1,) if wrong else ())

    def write(self, work: Work) -> None:
        """The state behind the last token."""
        if not work.first:
            self._strays.discard(work.rid)
        moved = self.expected(work.namespace, work.tokens[: work.last])
        self._pool[:, self._slot(work)] = (~moved if work.rid in self._strays else moved).to(self._pool.device)

    def expected(self, namespace: Namespace, tokens: Tokens) -> torch.Tensor:
        """The right state behind `tokens`, uint8 [parts, page_part_bytes], on the host."""
        parts, size = self._config.parts, self._config.page_part_bytes
        prefix = xxhash.xxh3_64(f"{self._config.name} {namespace!r}".encode())
        prefix.update(np.ascontiguousarray(tokens, dtype="<u4").tobytes())
        words = np.arange(-(-parts * size // WORD), dtype=np.uint64) ^ np.uint64(prefix.intdigest())
        return torch.from_numpy(scramble(words).view(np.uint8)[: parts * size].reshape(parts, size).copy())

    def _slot(self, work: Work) -> int:
        slots: Slots = work.pages(self._config.name)
        return int(slots[-1])
