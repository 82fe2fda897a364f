"""One engine's life in the demo: attached, serving passes of prompts, closed. It owns store, pools and counts.

Openings are submitted one after the other, so that their time to first token is the machine's and not the queue's. Then
all second turns come at once, and all third ones, to a device pool that cannot hold them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stagehold import AttachmentState, AuditLog, Engine, EngineConfig, Namespace
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Store
from stagehold.lab.clock import StoreUnusable
from stagehold.lab.demo.prompts import Kind, Prompt
from stagehold.lab.demo.recorder import Record, Recorder
from stagehold.lab.demo.spec import CHUNK_TOKENS, PAGE
from stagehold.lab.expand import Unbounded
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.sizes import pools_of, waits_of
from stagehold.serving.model.smollm import Loaded
from stagehold.serving.model.witness import Digests, PageCounts, WitnessedRunner
from stagehold.serving.scheduler import Scheduler

POLL_SECONDS = 0.002
DRAIN_TICKS = 1_000_000


class Waiting(Store, Protocol):
    """A store that can be waited for."""

    def wait(self, seconds: float) -> None:
        """Block until an operation ended, or until `seconds` are over."""


@dataclass(frozen=True, slots=True)
class PassFound:
    """What one pass found, in order of submission; `host_hit_tokens` of the store's hits were still in host memory."""

    name: str
    records: tuple[Record, ...]
    host_hit_tokens: int
    retractions: int


class Stage:
    """One engine on one store, with a model; use `serving` to make one."""

    def __init__(
        self, engine: Engine, store: Waiting, runner: WitnessedRunner, recorder: Recorder, namespace: Namespace
    ) -> None:
        self.engine = engine
        self._store = store
        self._runner = runner
        self._recorder = recorder
        self._namespace = namespace
        self._scheduler = Scheduler(engine, runner, token_budget=CHUNK_TOKENS)
        self._retractions = 0

    @property
    def counts(self) -> PageCounts:
        """Pages taken over so far, and how many had other bytes."""
        return self._runner.counts

    def ready(self) -> None:
        """Wait for the store's self-test."""
        while self.engine.attachment is AttachmentState.ATTACHING:
            self.engine.tick()
            self._pause()
        if self.engine.attachment is not AttachmentState.ATTACHED:
            raise StoreUnusable(f"the store failed its self-test: it is {self.engine.attachment.name.lower()}")

    def serve(self, name: str, prompts: Sequence[Prompt], answer_tokens: int) -> PassFound:
        """One pass over the prompts."""
        host = self.engine.stats().local
        rids = [f"{name}: {prompt.rid}" for prompt in prompts]
        for turn in sorted({prompt.turn for prompt in prompts}):
            for rid, prompt in zip(rids, prompts, strict=True):
                if prompt.turn == turn:
                    self._submit(rid, prompt, answer_tokens)
                    if prompt.kind is not Kind.TURN:
                        self._run()
            self._run()
        self._written()
        retractions, self._retractions = self._retractions, 0
        records = tuple(self._recorder.records[rid] for rid in rids)
        return PassFound(name, records, self.engine.stats().local - host, retractions)

    def _submit(self, rid: str, prompt: Prompt, answer_tokens: int) -> None:
        self._recorder.submitted(prompt, rid)
        self._scheduler.submit(rid, prompt.tokens, self._namespace, answer_tokens)

    def _run(self) -> None:
        """Passes until nobody waits or runs. One in which nothing was computed waits for the store's threads."""
        while not self._scheduler.idle:
            done = self._scheduler.step()
            for one in done.admitted:
                self._recorder.admitted(one.rid, one.admission)
            self._retractions += len(done.retracted)
            if not done.computed_tokens:
                self._pause()

    def _written(self) -> None:
        """Let the writes of this pass end, so that none of them slows the next one."""
        self.engine.drain(DRAIN_TICKS, pause=self._pause)

    def _pause(self) -> None:
        self._store.wait(POLL_SECONDS)


@contextmanager
def serving(
    loaded: Loaded,
    config: EngineConfig,
    *,
    store_url: str,
    audit: Path,
    digests: Digests,
    known: Unbounded,
    clock: Callable[[], float],
) -> Iterator[Stage]:
    """An engine with everything around it, ready to serve; closed at the end, and then nobody may own anything.

    `known` holds the prompts that were served before, here or by whoever filled the store.
    """
    store: Waiting = open_store(store_url, config.largest_page_bytes)  # type: ignore[assignment]  # a file store runs on threads
    with AuditLog(audit) as log, closing(store):
        engine = Engine(config, store=store, sink=log.block, on_violation=log.violation)
        with closing(engine):
            pools = pools_of(engine)
            model = TransformersModel(loaded.model, PAGE, pools, waits_of(engine))
            recorder = Recorder(model, clock, known)
            runner = WitnessedRunner(recorder, model.components, pools, PAGE, digests)
            stage = Stage(engine, store, runner, recorder, Namespace(f"{loaded.name}, pages of {PAGE}"))
            stage.ready()
            yield stage
        left = engine.stats()
        assert not left.owned, f"the engine closed and left {left.owned}"


def drop_page_cache(folder: Path) -> int:
    """Write the store's files out and ask the kernel to forget them; returns their bytes. Hosts may still hold them."""
    os.sync()
    dropped = 0
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                dropped += path.stat().st_size
    return dropped
