"""Set-ups of the connector's two sides around the double: a Llama-like model, and one with two groups of windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from stagehold.adapters.vllm.layout import Layout, engine_config, layout_of
from stagehold.adapters.vllm.options import Options
from stagehold.adapters.vllm.scheduler import SchedulerSide
from stagehold.adapters.vllm.tier import Tier
from stagehold.adapters.vllm.worker import WorkerSide
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore

from .double import CONTENT, HEADS, Request, Vllm, answer

SIZE = 4
WINDOW = 10
MODELS = ("llama", "gemma")
_serial = itertools.count()


class FullAttentionSpec(SimpleNamespace):
    """As vLLM's, by its name."""


class SlidingWindowSpec(SimpleNamespace):
    """As vLLM's, by its name."""


def block_bytes(size: int = SIZE) -> int:
    return HEADS * size * CONTENT * 4


def cache_config(model: str, n_blocks: int, *, size: int = SIZE, window: int = WINDOW) -> Any:
    """vLLM's KVCacheConfig: one group of two layers; or three, of which two are windows."""
    full = FullAttentionSpec(block_size=size, unpadded_page_size_bytes=block_bytes(size))
    narrow = SlidingWindowSpec(block_size=size, unpadded_page_size_bytes=block_bytes(size), sliding_window=window)
    specs = [full] if model == "llama" else [narrow, narrow, full]
    groups = [
        SimpleNamespace(layer_names=[f"layer.{2 * group}", f"layer.{2 * group + 1}"], kv_cache_spec=spec)
        for group, spec in enumerate(specs)
    ]
    return SimpleNamespace(num_blocks=n_blocks, kv_cache_groups=groups)


def layout(model: str, n_blocks: int = 64, *, window: int = WINDOW) -> Layout:
    return layout_of(cache_config(model, n_blocks, window=window), SIZE)


class Bench:
    """One vLLM with the connector, over a store."""

    def __init__(self, model: str, options: Options, store: Store | None, **changes: Any) -> None:
        self.layout = layout(model, changes.pop("n_blocks", 64), window=changes.pop("window", WINDOW))
        budget = changes.pop("budget", 32)
        config = engine_config(self.layout, options, model_tokens=changes.pop("model_tokens", 160), step_tokens=budget)
        config = config.model_copy(update=changes.pop("engine", {}))
        self.store = store
        self.tier = Tier(config, options, f"double-{next(_serial)}", store=store)
        self.engine = self.tier.engine
        self.tier.ready()
        self.scheduler = SchedulerSide(self.tier, self.layout, options, f"a {model}")
        self.worker = WorkerSide(self.layout)
        self.vllm = Vllm(self.layout, self.scheduler, self.worker, budget=budget, **changes)
        self.asked: list[Request] = []

    @property
    def counts(self) -> Any:
        return self.scheduler.counts

    def ask(self, rid: str, tokens: list[int], count: int = 3, **more: Any) -> Request:
        request = self.vllm.submit(Request(rid, tokens, count, **more))
        self.asked.append(request)
        return request

    def serve(self, rid: str, tokens: list[int], count: int = 3, **more: Any) -> Request:
        request = self.ask(rid, tokens, count, **more)
        self.vllm.run()
        return request

    def forget_local(self) -> None:
        assert self.vllm.reset_prefix_cache(), "blocks have leaked"

    def written(self) -> None:
        """Step until the store has everything."""
        for _ in range(2000):
            if not self.scheduler.writing:
                return
            self.vllm.step()
        raise AssertionError("the writes do not end")

    def check(self, *, written: bool = True) -> None:
        """Right answers, no page of other tokens, no block and no slot that somebody has forgotten."""
        assert not self.vllm.wrong, f"{self.vllm.wrong} of {self.vllm.read} positions were read with other numbers"
        for one in self.asked:
            right = answer(one.prompt_token_ids, one.max_tokens, one.cache_salt or "")
            assert right[: len(one.answered)] == one.answered
            assert one.status.name == "FINISHED_ABORTED" or right == one.answered
        assert self.vllm.reset_prefix_cache(), "blocks have leaked"
        if written:
            self.written()
        ours = ("slots", "lock", "claim", "query", "pin", *(("io", "staging", "backlog") if written else ()))
        owned = {what: n for what, n in self.engine.stats().owned.items() if n and what in ours}
        assert not owned, f"{owned}, {self.engine.stats().states}"
        assert 0 == self.engine.stats().violations


@contextmanager
def bench(model: str, *, store: Store | str | None = "simulated", **changes: Any) -> Iterator[Bench]:
    """A bench that ends as a server does; `changes` are options first, then what `Bench` takes."""
    named = {name: changes.pop(name) for name in list(changes) if name in Options.model_fields}
    options = Options(**{"threshold_tokens": 4, "pause_seconds": 0.001, "prefetch_policy": "wait_complete", **named})
    if store == "simulated":
        store = SimulatedStore(medium=Medium(), delays=Delays(exists=(1, 2), get=(1, 3), put=(1, 3)))
    one = Bench(model, options, store, **changes)
    try:
        yield one
    finally:
        one.worker.close()
        one.scheduler.close()


def prompt(length: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50_000, length)]
