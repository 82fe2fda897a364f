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
from stagehold.serving.model.layouts import LayerPlace, layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.runner import ModelRunner
from stagehold.serving.model.sizes import options_of, pools_of, waits_of
from stagehold.serving.model.witness import Digests, WitnessedRunner
from stagehold.serving.runner import Runner, Work
from stagehold.serving.scheduler import Pass, Scheduler

PAGE = 16
CHUNK = 64
HERE = Namespace("model under test, float32")
PATIENT = Limits(lookup_limit=5_000, park_limit=5_000, fetch_limit=20_000, ready_limit=40_000, wait_cap_ticks=25_000,
                 wait_base_ticks=25_000)  # fmt: skip


Page = list[tuple[torch.Tensor, torch.Tensor]]
"""K and V of each layer of one component, [1, heads, tokens, size]."""


class Call(NamedTuple):
    """One work as it was computed, its logits, and by component the digests of the pages before it that have slots."""

    work: Work
    logits: torch.Tensor
    read: dict[str, dict[int, int]]


class Served:
    """What one engine computed: every call with its logits, the witness's counts, hits and tokens of each request."""

    def __init__(
        self,
        model: Any,
        folder: Path | None,
        *,
        digests: Digests | None = None,
        wrap: Callable[[Runner, torch.Tensor], Runner] | None = None,
        device_pages: int = 96,
        **changes: Any,
    ) -> None:
        layout = layout_of(model.config, PAGE, model.dtype)
        sizes: dict[str, Any] = {
            **options_of(layout, device_pages=device_pages, staging_pages=device_pages if folder else 0),
            "largest_request_tokens": 1024,
            "chunk_tokens": CHUNK,
            "host_memory_mode": HostMode.BUFFER_ONLY if folder else HostMode.CACHE,
            "prefetch_threshold_tokens": PAGE,
            "limits": PATIENT,
        }
        self.store = WorkerStore(FileStore(folder)) if folder else None
        self.engine = Engine(EngineConfig(**{**sizes, **changes}), store=self.store, strict=True)
        self.pools = pools_of(self.engine)
        self.calls: list[Call] = []
        paged = TransformersModel(model, PAGE, self.pools, waits_of(self.engine))
        runner: Runner = ModelRunner(paged, self._note)
        runner = wrap(runner, self.pools[FULL]) if wrap else runner
        self.witness = WitnessedRunner(runner, paged.components, self.pools, PAGE, digests)
        self.scheduler = Scheduler(self.engine, self.witness, token_budget=CHUNK)
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
        read = {
            name: {
                page: xxhash.xxh3_64_intdigest(pool[:, int(slot)].contiguous().numpy().data)
                for page, slot in enumerate(work.pages(name)[: work.first // PAGE])
                if slot >= 0
            }
            for name, pool in self.pools.items()
        }
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
        self._places = layout_of(model.config, PAGE, model.dtype).layers
        self._pages: dict[tuple[str, bytes, int], Page] = {}
        self._tails: dict[str, Page] = {}  # by request: each layer's tokens behind its last whole page

    def differs(self, calls: Sequence[Call]) -> float:
        """Largest difference of any logit of any call; 0.0 means the same bits."""
        return max(float((call.logits - self._again(call)).abs().max()) for call in calls)

    def _again(self, call: Call) -> torch.Tensor:
        work = call.work
        chain = Chain(work.namespace, work.tokens[: work.last], PAGE)
        cache = DynamicCache(config=self._model.config)
        tails = self._tails.get(work.rid, []) if work.first % PAGE else []
        new = [
            self._prepared(layer, place, self._past(place, call, chain, tails[number : number + 1]), work.first)
            for number, (layer, place) in enumerate(zip(cache.layers, self._places, strict=True))
        ]
        ids = torch.from_numpy(work.tokens[work.first : work.last].astype(np.int64))[None]
        with torch.inference_mode():
            logits = self._model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        whole = [joined([*tails[number : number + 1], *made]) for number, made in enumerate(new)]
        start = work.first // PAGE
        for page in range(start, work.last // PAGE):
            self._keep(
                chain.page_key(page), [cut(kv, (page - start) * PAGE, (page + 1 - start) * PAGE) for kv in whole]
            )
        self._tails[work.rid] = [cut(kv, (work.last // PAGE - start) * PAGE, None) for kv in whole]
        return logits

    def _past(self, place: LayerPlace, call: Call, chain: Chain, tail: Page) -> Page:
        """K and V of the tokens that the layer may see before the call; none if there are none."""
        first, read = call.work.first, call.read[place.component]
        low = max(0, first - place.window + 1) if place.window else 0
        parts = [
            self._pages[place.component, chain.page_key(page), read[page]][place.index]
            for page in range(low // PAGE, first // PAGE)
        ]
        past = [*parts, *tail]
        start = low // PAGE * PAGE if parts else first // PAGE * PAGE
        return [cut(joined(past), low - start, None)] if past else []

    def _prepared(self, layer: Any, place: LayerPlace, past: Page, first: int) -> Page:
        """The library's layer with that past; what it is given from now on is noted in the list returned."""
        if past:
            layer.update(*past[0])
        if place.window:
            layer.cumulative_length = first
        given: Page = []
        update = layer.update

        def noting(keys: torch.Tensor, values: torch.Tensor, **more: Any) -> Any:
            given.append((keys.clone(), values.clone()))
            return update(keys, values, **more)

        layer.update = noting
        return given

    def _keep(self, key: bytes, layers: Page) -> None:
        for component in {place.component for place in self._places}:
            made = [kv for kv, place in zip(layers, self._places, strict=True) if place.component == component]
            self._pages[component, key, digest_of(made)] = made


def joined(parts: Page) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([part[0] for part in parts], dim=2), torch.cat([part[1] for part in parts], dim=2)


def cut(kv: tuple[torch.Tensor, torch.Tensor], start: int, end: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    return kv[0][:, :, start:end], kv[1][:, :, start:end]


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
