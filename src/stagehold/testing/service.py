"""A small server over any store: engine, bundled scheduler and a model whose right bytes are known.

It runs at a pace in wall time, as a server with a store of real threads does, and sees every byte that a request
reads. It owns the engine that it builds, which closes the store. It plays no faults: those are done to the store
from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from stagehold.cache.keys import Namespace
from stagehold.cache.stores.protocol import Store
from stagehold.lifecycle.engine import Engine
from stagehold.serving.pattern import Layout, Tokens
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Pass, Scheduler
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import HostMode
from stagehold.specs.store import StoreState

PAGE_SIZE = 16
PROMPT_PAGES = 8
HOME = Namespace("service")
PASSES_MOST = 20_000
"""Far beyond the sum of all limits, so that only a wedge gets here."""


@dataclass(slots=True)
class Served:
    """What requests have got so far: `waited` counts the passes from a request's arrival to its admission."""

    submitted: int = 0
    finished: int = 0
    store_hit_tokens: int = 0
    device_hit_tokens: int = 0
    waited: dict[str, int] = field(default_factory=dict)


class Service:
    """Serves prompts of `PROMPT_PAGES` pages of `page_bytes` (a multiple of 1 KiB); `limits` are an engine's.

    `pace_seconds` is how long an idle pass waits for the store. Without a page cache it is asked each time.
    """

    def __init__(
        self,
        store: Store,
        *,
        page_bytes: int = 1 << 16,
        pace_seconds: float = 0.002,
        mode: HostMode = HostMode.BUFFER_ONLY,
        staging_pages: int = 16 * PROMPT_PAGES,
        page_cache_fraction: float = 0.0,
        tenant_share: float = 0.0,
        **limits: Any,
    ) -> None:
        layout = Layout(layers=4, token_part_bytes=page_bytes // PAGE_SIZE // 8, page_size=PAGE_SIZE)
        self.config = EngineConfig(
            page_size=PAGE_SIZE,
            device_pages=16 * (PROMPT_PAGES + 1),
            staging_pages=staging_pages,
            largest_request_tokens=PAGE_SIZE * (PROMPT_PAGES + 1),
            host_memory_mode=mode,
            prefetch_threshold_tokens=PAGE_SIZE,
            page_cache_fraction=page_cache_fraction,
            tenant_share=tenant_share,
            parts=layout.parts,
            page_part_bytes=layout.page_part_bytes,
            limits=Limits(**limits),
        )
        self.store = store
        self.served = Served()
        self.engine = Engine(self.config, store=store, strict=True)
        assert self.engine.device_bytes is not None, "a service attaches tensors"
        self.runner = PatternRunner(layout, self.engine.device_bytes.tensor)
        self.scheduler = Scheduler(self.engine, self.runner, token_budget=64 * PAGE_SIZE * PROMPT_PAGES)
        self._pace_seconds = pace_seconds
        self._came: dict[str, int] = {}
        self._passes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def breaker(self) -> StoreState:
        """What the engine thinks of its store."""
        state = self.engine._parts.core.breaker.state  # noqa: SLF001 - a harness looks inside
        assert isinstance(state, StoreState)
        return state

    def attach(self) -> None:
        """Run passes until the store has passed its self-test. Raises RuntimeError where it fails it."""
        self.until(lambda: self.engine.attachment is not AttachmentState.ATTACHING)
        if self.engine.attachment is not AttachmentState.ATTACHED:
            said = "; ".join(getattr(self.store, "errors", ())) or "its test page did not come back"
            raise RuntimeError(f"the store failed its self-test: {said}")

    def submit(self, families: Sequence[int], namespace: Namespace = HOME) -> list[str]:
        """Queue a request for each family of prompts; return their ids."""
        rids = []
        for family in families:
            rid = f"{family}-{self.served.submitted}"
            self.scheduler.submit(rid, prompt(family), namespace, 2)
            self._came[rid] = self._passes
            self.served.submitted += 1
            rids.append(rid)
        return rids

    def step(self) -> Pass:
        """One pass; where it computed nothing, a moment for the store."""
        done = self.scheduler.step()
        self._passes += 1
        for one in done.admitted:
            self.served.waited.setdefault(one.rid, self._passes - self._came[one.rid] - 1)
            self.served.store_hit_tokens += one.admission.store_hit_tokens
            self.served.device_hit_tokens += one.admission.device_hit_tokens
        self.served.finished += len(done.finished)
        if not done.computed_tokens:
            getattr(self.store, "wait", time.sleep)(self._pace_seconds)
        return done

    def until(self, done: Callable[[], bool]) -> None:
        """Run passes until `done()`. Raises RuntimeError where that takes too many."""
        for _ in range(PASSES_MOST):
            if done():
                return
            self.step()
        raise RuntimeError(f"not after {PASSES_MOST} passes")

    def serve(self, families: Sequence[int], namespace: Namespace = HOME) -> list[str]:
        """Serve a request for each family to its end; return their ids."""
        rids = self.submit(families, namespace)
        self.until(lambda: self.scheduler.idle)
        return rids

    def drain(self) -> None:
        """Wait until all writes have ended, well or not."""
        self.engine.drain(PASSES_MOST, lambda: getattr(self.store, "wait", time.sleep)(self._pace_seconds))

    def breaches(self) -> list[str]:
        """Say what must never be: requests that did not end, wrong bytes, hits that were none."""
        found = {
            "requests did not finish": self.served.submitted - self.served.finished,
            "wrong bytes were read": self.runner.wrong_bytes,
            "hit tokens were phantoms": self.runner.phantom_tokens,
        }
        return [f"{count} {what}" for what, count in found.items() if count]

    def close(self) -> None:
        """End everything, the store too."""
        self.scheduler.abort_all()
        self.engine.close()


def prompt(family: int) -> Tokens:
    """The prompt of a family: `PROMPT_PAGES` whole pages and a token, shared with no other family."""
    return np.arange(PROMPT_PAGES * PAGE_SIZE + 1, dtype=np.uint32) + np.uint32(family * 100_000)
