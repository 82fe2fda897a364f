"""Watches a runner: what it wrote to each page, and whether the pages that a request takes over hold those bytes.

It owns a digest of every page that was computed, by component and page key, so that bytes in the wrong place are
wrong bytes. It looks before and after the runner and changes nothing. States are not looked at: a request computes in
the slot that holds its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import xxhash

from stagehold import Chain
from stagehold.serving.model.layouts import PageLayout
from stagehold.serving.runner import Runner, Work

Digests = dict[str, list[int]]
"""Page name (component and key) to the digests of what was computed for it: other chunks may give other last bits."""


@dataclass(slots=True)
class PageCounts:
    """Pages taken over and compared: those whose bytes were others, and those that nobody was seen to compute."""

    compared: int = 0
    wrong: int = 0
    unknown: int = 0
    bytes: int = 0
    wrong_pages: list[tuple[str, str, int]] = field(default_factory=list)  # (rid, component, page)


class WitnessedRunner:
    """A runner between the scheduler and `inner`, one work at a time.

    `pools` has the uint8 [parts, slots, page_part_bytes] tensor of each component. `digests` may come from an earlier
    process; what is computed here is added to it.
    """

    def __init__(
        self,
        inner: Runner,
        components: Mapping[str, PageLayout],
        pools: Mapping[str, torch.Tensor],
        page_size: int,
        digests: Digests | None = None,
    ) -> None:
        self.digests: Digests = {} if digests is None else digests
        self.counts = PageCounts()
        self._inner = inner
        self._components = components
        self._pools = pools
        self._page_size = page_size

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """See `Runner.forward`. Pages are compared behind the computation, which leaves them as they are."""
        answers = []
        for work in batch:
            answers += self._inner.forward([work])
            chain = Chain(work.namespace, work.tokens[: work.last], self._page_size)
            self._compare(work, chain)
            self._capture(work, chain)
        return answers

    def read(self, work: Work) -> None:
        """See `Runner.read`."""
        self._inner.read(work)

    def _compare(self, work: Work, chain: Chain) -> None:
        """Pages that the cache promised, when they are read for the first time."""
        for component, page, digest in self._digested(work, work.unread, min(work.first, work.reused)):
            known = self.digests.get(_name(component, chain, page))
            self.counts.compared += 1
            self.counts.bytes += self._components[component].page_bytes
            if known is None:
                self.counts.unknown += 1
            elif digest not in known:
                self.counts.wrong += 1
                self.counts.wrong_pages.append((work.rid, component, page))

    def _capture(self, work: Work, chain: Chain) -> None:
        """Pages that this work has made whole."""
        for component, page, digest in self._digested(work, work.first, work.last):
            known = self.digests.setdefault(_name(component, chain, page), [])
            if digest not in known:
                known.append(digest)

    def _digested(self, work: Work, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """(component, page, digest) of the whole pages of tokens [start, end), those without a slot left out."""
        for component, layout in self._components.items():
            if layout.page_size != self._page_size:
                continue
            slots = work.pages(component)
            for page in range(start // self._page_size, end // self._page_size):
                if slots[page] >= 0:
                    yield component, page, _digest(self._pools[component][:, int(slots[page])])


def _name(component: str, chain: Chain, page: int) -> str:
    return f"{component}:{chain.page_key(page).hex()}"


def _digest(page: torch.Tensor) -> int:
    """The checksum of one page, [parts, page_part_bytes], part by part."""
    return xxhash.xxh3_64_intdigest(page.contiguous().cpu().numpy().data)
