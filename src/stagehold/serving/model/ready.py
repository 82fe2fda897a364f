"""The model that a run serves, real or random, and how fast this machine runs it.

Owns the choice of the thread count, which is measured: on a busy machine two threads can be slower than one. The clock
is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.random_models import ByteChat, random_model
from stagehold.serving.model.smollm import Loaded, find_smollm, load_smollm

CHUNK = 64
STEPS = 2
TRIES = 5
FAMILY = "gemma3"
"""A hybrid of full and sliding attention, so that both kinds of pools are used."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What the machine does with a thread count, in medians: prompt tokens in a second, seconds of a decode step."""

    threads: int
    prompt_tokens_per_second: float
    step_seconds: float


def load_model(*, random: bool = False) -> Loaded:
    """The real model where its package is installed, unless random weights are asked for."""
    path = None if random else find_smollm()
    if path is not None:
        return load_smollm(path)
    return Loaded(f"a small {FAMILY} hybrid, no real model", random_model(FAMILY), ByteChat(), real=False)


def calibrate(loaded: Loaded, counts: Sequence[int], clock: Callable[[], float]) -> Pace:
    """Set the number of torch's threads to that among `counts` which is fastest for a short prompt; say how fast."""
    pace = max((_measured(loaded, threads, clock) for threads in counts), key=lambda one: one.prompt_tokens_per_second)
    torch.set_num_threads(pace.threads)
    return pace


def _measured(loaded: Loaded, threads: int, clock: Callable[[], float]) -> Pace:
    torch.set_num_threads(threads)
    layout = layout_of(loaded.model.config, CHUNK, loaded.model.dtype)
    pools = {name: page.pool(2) for name, page in layout.components.items()}
    model = TransformersModel(loaded.model, CHUNK, pools)
    slots = {name: np.arange(2) for name in pools}
    tokens = np.arange(1, CHUNK + STEPS + 1, dtype=np.uint32)
    prompts, steps = [], []
    for _ in range(TRIES):
        start = clock()
        model.forward(tokens[:CHUNK], 0, slots)
        middle = clock()
        for at in range(CHUNK, CHUNK + STEPS):
            model.forward(tokens[at : at + 1], at, slots)
        prompts.append(middle - start)
        steps.append((clock() - middle) / STEPS)
    return Pace(threads, CHUNK / median(prompts), median(steps))
