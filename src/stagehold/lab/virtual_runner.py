"""Stands for the model in virtual time: what a pass computed, and what every page must hold.

A page's content is one number, the fingerprint of its prefix. What is computed is written to the page's slot; what is
taken over is looked at, and a page that holds another number is a phantom: it was counted as a hit and not delivered.
It owns these numbers and moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from stagehold import Admission, Engine
from stagehold.lab.stats_prefixes import page_words, prints
from stagehold.lab.virtual_reads import Reads
from stagehold.serving.pattern import Slots, Tokens
from stagehold.serving.runner import Work
from stagehold.serving.scheduler import Pass, Request, Scheduler
from stagehold.serving.words import VOCABULARY, scramble

NO_SLOTS: Slots = np.zeros(0, dtype=np.int64)
BODY_BYTES = 8
"""A page's content: one number."""


@dataclass(slots=True)
class PassWork:
    """What one pass computed: prompt tokens, decode steps and the tokens of context they read, first answers."""

    prefill_tokens: int = 0
    steps: int = 0
    context_tokens: int = 0
    answered: list[str] = field(default_factory=list)


class VirtualRunner:
    """See `Runner`. `pool` holds a number for each device slot; a request is known from `expect` to its end.

    `reads` is told which pages of the store were of use. With `mends` phantoms are computed after all, as a server does
    that has charged for them ahead.
    """

    def __init__(self, pool: npt.NDArray[np.uint64], page_size: int, reads: Reads, *, mends: bool = False) -> None:
        self.phantom_tokens = 0
        self.compared_pages = 0
        self._pool = pool
        self._page = page_size
        self._pages: dict[str, npt.NDArray[np.uint64]] = {}
        self._answers: dict[str, tuple[int, Tokens]] = {}
        self._reads = reads
        self._mends = mends
        self._device_pages: dict[str, int] = {}

    def expect(self, rid: str, tokens: Tokens, output_tokens: int) -> npt.NDArray[np.uint64]:
        """A request arrives; returns the words of its prompt's whole pages."""
        words = page_words(tokens, self._page)
        self._pages[rid] = prints(words)
        self._answers[rid] = (len(tokens), answers(rid, len(tokens), output_tokens))
        return words

    def admitted(self, rid: str, device_hit_tokens: int) -> None:
        """A request was admitted; what it hits beyond these tokens came from the store."""
        self._device_pages[rid] = device_hit_tokens // self._page

    def answer(self, rid: str, first: int, count: int) -> Tokens:
        """`count` tokens of a request's answer, from position `first` on."""
        prompt, tokens = self._answers[rid]
        return tokens[first - prompt : first - prompt + count]

    def forget(self, rid: str) -> None:
        """A request has ended."""
        del self._pages[rid], self._answers[rid]
        self._device_pages.pop(rid, None)

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """See `Runner.forward`."""
        for one in batch:
            if len(one.slots):
                self._write(one)
        return [self._next(one) for one in batch]

    def read(self, work: Work) -> None:
        """See `Runner.read`: what was computed here was looked at already."""

    def _next(self, one: Work) -> int:
        """The token behind a work; within a prompt nobody asks for it."""
        prompt, tokens = self._answers[one.rid]
        return int(tokens[one.last - prompt]) if prompt <= one.last < prompt + len(tokens) else 0

    def _write(self, one: Work) -> None:
        """Look at the pages that are read for the first time, and fill those that are full now."""
        first, last = one.first // self._page, one.last // self._page
        if one.first == one.reused and first:
            self._take_over(one, self._contents(one, first))
        if last > first:
            self._pool[one.slots[first:last]] = self._contents(one, last)[first:]

    def _take_over(self, one: Work, pages: npt.NDArray[np.uint64]) -> None:
        """Hold the hit against what it should be."""
        slots = one.slots[: len(pages)]
        right = self._pool[slots] == pages
        stored = slice(self._device_pages.get(one.rid, len(pages)), None)
        self._reads.taken_over(pages[stored][right[stored]])
        self.compared_pages += len(pages)
        self.phantom_tokens += self._page * int((~right).sum())
        if self._mends:
            self._pool[slots] = pages

    def _contents(self, one: Work, upto: int) -> npt.NDArray[np.uint64]:
        known = self._pages[one.rid]
        if upto > len(known):  # pages that reach into the answer
            known = prints(page_words(one.tokens[: upto * self._page], self._page))
        return known[:upto]


class VirtualScheduler(Scheduler):
    """The bundled scheduler in which a pass stands for up to `steps` decode steps; `work` is what the last pass did.

    Page tables are looked at only where pages begin to be used or are filled.
    """

    def __init__(
        self,
        engine: Engine,
        runner: VirtualRunner,
        *,
        page_size: int,
        steps: int,
        token_budget: int,
        running_limit: int,
    ) -> None:
        super().__init__(engine, runner, token_budget=token_budget, running_limit=running_limit)
        self._virtual = runner
        self.work = PassWork()
        self._page = page_size
        self._steps = steps

    def step(self) -> Pass:
        """One pass."""
        self.work = PassWork()
        return super().step()

    def _start(self, request: Request, admission: Admission, done: Pass) -> None:
        self._virtual.admitted(request.rid, admission.device_hit_tokens)
        super()._start(request, admission, done)

    def _go_on(self, batch: list[tuple[Request, int]], budget: int, done: Pass) -> int:
        for request in self._running:
            ahead = min(self._steps, len(request.tokens) - request.known) - 1
            if ahead > 0 and request.computed + 1 == request.known and request.computed >= request.prefill:
                request.tokens[request.known : request.known + ahead] = self._virtual.answer(
                    request.rid, request.known, ahead
                )
                request.known += ahead
                request.landed = request.known
        return super()._go_on(batch, budget, done)

    def _work(self, request: Request, count: int) -> Work:
        first, last = request.computed, request.computed + count
        if count:
            self._note(request, first, last)
        if count and (first == request.reused or first // self._page < last // self._page):
            return super()._work(request, count)
        return Work(request.rid, request.namespace, request.tokens, first, last, request.read, request.reused, NO_SLOTS)

    def _note(self, request: Request, first: int, last: int) -> None:
        if first < request.prefill:
            self.work.prefill_tokens += last - first
            if last == request.prefill:
                self.work.answered.append(request.rid)
        else:
            self.work.steps = max(self.work.steps, last - first)
            self.work.context_tokens += (last - first) * last


def answers(rid: str, first: int, count: int) -> Tokens:
    """A request's answer from position `first` on: its own, and the same again after a retraction."""
    seed = np.uint64(xxhash.xxh3_64_intdigest(rid.encode()))
    words = scramble(np.arange(first, first + count, dtype=np.uint64) ^ seed)
    return (words % np.uint64(VOCABULARY)).astype(np.uint32)
