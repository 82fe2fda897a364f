"""A model with states behind the engine: it goes on from checkpoints, on the device and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from stagehold import AttachmentState, Engine, EngineConfig, Namespace
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.serving.model.recurrent import RecurrentModel, recurrent_layout
from stagehold.serving.model.runner import ModelRunner
from stagehold.serving.model.sizes import engine_options, pools_of
from stagehold.serving.runner import Work
from stagehold.serving.scheduler import Scheduler

PAGE = 16
CHUNK = 64
HERE = Namespace("states under test")


def tokens(length: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(3).integers(0, 256, length).astype(np.uint32)


def served(folder: Path | None, prompts: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, tuple[int, int]]]:
    """Logits of each request's first token, and its hits; one request after the other."""
    pages = recurrent_layout(PAGE)
    options = engine_options(pages, window_tokens=1, device_pages=40, staging_pages=40 if folder else 0)
    store = WorkerStore(FileStore(folder)) if folder else None
    config = EngineConfig(**options, largest_request_tokens=256, chunk_tokens=CHUNK, prefetch_threshold_tokens=PAGE)
    engine = Engine(config, store=store, strict=True)
    first: dict[str, torch.Tensor] = {}
    hits: dict[str, tuple[int, int]] = {}

    def note(work: Work, logits: torch.Tensor) -> None:
        if work.last == len(prompts[work.rid]):
            first[work.rid] = logits

    scheduler = Scheduler(engine, ModelRunner(RecurrentModel(PAGE, pools_of(engine)), note), token_budget=CHUNK)

    def pause() -> None:
        if store:
            store.wait(0.002)

    while engine.attachment is AttachmentState.ATTACHING:
        engine.tick()
        pause()
    for rid, ids in prompts.items():
        scheduler.submit(rid, ids, HERE, 3)
        while not scheduler.idle:
            done = scheduler.step()
            for one in done.admitted:
                hits[one.rid] = (one.admission.device_hit_tokens, one.admission.store_hit_tokens)
            if not done.computed_tokens:
                pause()
    if folder:
        engine.drain(20_000, pause=pause)
    engine.close()
    assert {} == engine.stats().owned
    return first, hits


def test_checkpoints_carry_a_request_on(tmp_path: Path) -> None:
    """On the device and after a restart, from the last checkpoint that was taken: logits as computed from the start."""
    chat = tokens(220)
    prompts = {"turn 1": chat[:130], "turn 2": chat[:200], "turn 3": chat}
    off, _ = served(None, {"turn 3": chat})

    first, warm = served(tmp_path, prompts)
    second, restarted = served(tmp_path, {"turn 3": chat})

    assert [(0, 0), (128, 0), (192, 0)] == list(warm.values())
    assert 192 == sum(restarted["turn 3"])
    assert restarted["turn 3"][1] > 0
    assert torch.allclose(off["turn 3"], first["turn 3"], atol=1e-4)
    assert torch.equal(first["turn 3"], second["turn 3"])
