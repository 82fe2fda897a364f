"""Engine, scheduler and model on one file store, and a reference that makes the same calls on plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import xxhash
from transformers.cache_utils import DynamicCache

from stagehold import AttachmentState, Chain, Engine, EngineConfig, HostMode, Limits, Namespace
from stagehold.cache.components.full import FULL
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.runner import ModelRunner
from stagehold.serving.model.witness import Digests, WitnessedRunner
from stagehold.serving.runner import Runner, Work
from stagehold.serving.scheduler import Pass, Scheduler

PAGE = 16
HERE = Namespace("model under test, float32")
PATIENT = Limits(lookup_limit=5_000, park_limit=5_000, fetch_limit=20_000, ready_limit=40_000, wait_cap_ticks=25_000,
                 wait_base_ticks=25_000)  # fmt: skip


Page = list[tuple[torch.Tensor, torch.Tensor]]
"""K and V of each layer, [1, heads, PAGE, size]."""


class Call(NamedTuple):
    """One work as it was computed, its logits, and digests of the whole pages that it read."""

    work: Work
    logits: torch.Tensor
    read: list[int]


class Served:
    """What one engine computed: every call with its logits, the witness's counts, hits and tokens of each request."""

    def __init__(self, model: Any, folder: Path | None, *, digests: Digests | None = None,
                 wrap: Callable[[Runner, torch.Tensor], Runner] | None = None, **changes: Any) -> None:  # fmt: skip
        layout = layout_of(model.config, PAGE, model.dtype).components[FULL]
        sizes: dict[str, Any] = {
            "page_size": PAGE,
            "device_pages": 96,
            "staging_pages": 96 if folder else 0,
            "largest_request_tokens": 1024,
            "host_memory_mode": HostMode.BUFFER_ONLY if folder else HostMode.CACHE,
            "prefetch_threshold_tokens": PAGE,
            "parts": layout.parts,
            "page_part_bytes": layout.page_part_bytes,
            "limits": PATIENT,
        }
        self.store = WorkerStore(FileStore(folder)) if folder else None
        self.engine = Engine(EngineConfig(**{**sizes, **changes}), store=self.store, strict=True)
        assert self.engine.device_bytes is not None
        pools = {FULL: self.engine.device_bytes.tensor}
        self.calls: list[Call] = []
        paged = TransformersModel(model, PAGE, pools)
        runner: Runner = ModelRunner(paged, self._note)
        runner = wrap(runner, pools[FULL]) if wrap else runner
        self.witness = WitnessedRunner(runner, paged.components, pools, PAGE, digests)
        self.scheduler = Scheduler(self.engine, self.witness, token_budget=64)
        self.passes: list[Pass] = []
        while self.engine.attachment is AttachmentState.ATTACHING:
            self.engine.tick()
            self._pause()
        assert self.store is None or self.engine.attachment is AttachmentState.ATTACHED

    def _pause(self) -> None:
        """A tick is not time: what nobody computes in waits for the store's threads."""
        if self.store:
            self.store.wait(0.002)

    def _note(self, work: Work, logits: torch.Tensor) -> None:
        assert self.engine.device_bytes is not None
        pool, slots = self.engine.device_bytes.tensor, work.slots[: work.first // PAGE]
        read = [xxhash.xxh3_64_intdigest(pool[:, int(slot)].contiguous().numpy().data) for slot in slots]
        self.calls.append(Call(work, logits, read))

    def serve(self, prompts: dict[str, Any], answer: int = 4) -> None:
        for rid, tokens in prompts.items():
            self.scheduler.submit(rid, tokens, HERE, answer)
        while not self.scheduler.idle:
            done = self.scheduler.step()
            self.passes.append(done)
            if not done.computed_tokens:
                self._pause()

    def close(self) -> None:
        with closing(self.engine):
            self.engine.drain(20_000, pause=self._pause)
        assert {} == self.engine.stats().owned

    @property
    def hits(self) -> dict[str, tuple[int, int]]:
        return {
            one.rid: (one.admission.device_hit_tokens, one.admission.store_hit_tokens)
            for done in self.passes
            for one in done.admitted
        }


class Reference:
    """Makes the recorded calls again, each from plain tensors that the calls before it gave: no pool, no engine.

    A page that a call reads must hold the bytes that some call before it gave for the same tokens at the same place;
    where several did, with other last bits, its own bytes say which one to go on from.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._pages: dict[tuple[bytes, int], Page] = {}
        self._running: dict[str, Any] = {}

    def differs(self, calls: Sequence[Call]) -> float:
        """Largest difference of any logit of any call; 0.0 means the same bits."""
        return max(float((call.logits - self._again(call)).abs().max()) for call in calls)

    def _again(self, call: Call) -> torch.Tensor:
        work = call.work
        chain = Chain(work.namespace, work.tokens[: work.last], PAGE)
        cache = DynamicCache(config=self._model.config)
        pages = [self._pages[chain.page_key(page), digest] for page, digest in enumerate(call.read)]
        tail = slice(len(pages) * PAGE, work.first)
        for number, layer in enumerate(cache.layers):
            parts = [page[number] for page in pages]
            if tail.start < tail.stop:
                mine = self._running[work.rid].layers[number]
                parts.append((mine.keys[:, :, tail], mine.values[:, :, tail]))
            if parts:
                layer.update(*(torch.cat([part[i] for part in parts], dim=2) for i in (0, 1)))
        ids = torch.from_numpy(work.tokens[work.first : work.last].astype(np.int64))[None]
        with torch.inference_mode():
            logits = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        self._running[work.rid] = cache
        for page in range(work.first // PAGE, work.last // PAGE):
            span = slice(page * PAGE, (page + 1) * PAGE)
            made = [(layer.keys[:, :, span], layer.values[:, :, span]) for layer in cache.layers]
            self._pages[chain.page_key(page), digest_of(made)] = made
        return logits


def digest_of(page: Page) -> int:
    """Of the bytes that a page's slot must hold: K and V of each layer, tokens outermost."""
    parts = torch.stack([one[0].transpose(0, 1) for layer in page for one in layer])
    return xxhash.xxh3_64_intdigest(parts.contiguous().numpy().data)


@pytest.fixture(name="served")
def _served() -> type[Served]:
    return Served


@pytest.fixture(name="reference")
def _reference() -> type[Reference]:
    return Reference
