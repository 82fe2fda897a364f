"""Many requests at once in pools too small for them, drawn from a seed: shared heads, aborts, preemptions, failures."""

from __future__ import annotations

import random

import pytest

from stagehold.adapters.vllm.blocks import LayerBlocks

from .bench import Bench, bench, prompt
from .double import Status

SEEDS = range(4)


def storm(b: Bench, seed: int) -> None:
    """Sixty acts, then everybody is served."""
    dice = random.Random(seed)
    for act in range(60):
        match dice.randrange(10):
            case 0 | 1 | 2 | 3:
                head = prompt(40, dice.randrange(3))[: dice.randrange(4, 41)]
                b.ask(f"r{act}", [*head, *prompt(dice.randrange(1, 30), dice.randrange(4))], dice.randrange(1, 20))
            case 4 if b.vllm.requests:
                request = dice.choice(list(b.vllm.requests.values()))
                if request.status is not Status.FINISHED_ABORTED:
                    b.vllm.abort(request)
            case 5:
                b.vllm.reset_prefix_cache()
            case _:
                b.vllm.step()
    b.vllm.run()


@pytest.mark.parametrize(("model", "blocks"), [("llama", 30), ("gemma", 60)])
@pytest.mark.parametrize("loads", ["sync", "async"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm(model, blocks, loads, seed, monkeypatch):
    """Every answer is right, and nothing is kept. Beside steps every ninth load fails, too."""
    load, calls = LayerBlocks.load, [0]

    def sometimes(self, *arguments):
        calls[0] += 1
        if loads == "async" and calls[0] % 9 == 0:
            raise OSError("the link is down")
        load(self, *arguments)

    monkeypatch.setattr(LayerBlocks, "load", sometimes)
    with bench(model, loads=loads, n_blocks=blocks, pool_pages=40, model_tokens=96, reserve_tokens=6) as b:
        storm(b, seed)
        b.check()


def test_the_storms_have_all_that_they_are_for():
    """Over all seeds: loads, preemptions, requests that went without us, answers that outgrew what was promised."""
    found = {"loaded": 0, "preempted": 0, "shed": 0, "retracted": 0}
    for seed in SEEDS:
        with bench("llama", n_blocks=30, pool_pages=40, model_tokens=96, reserve_tokens=6) as b:
            storm(b, seed)
            found["loaded"] += b.counts["loaded_requests"]
            found["shed"] += b.counts["shed_requests"]
            found["preempted"] += sum(one.preemptions for one in b.asked)
            found["retracted"] += b.engine.stats().rows_taken.get("request.committed.retract", 0)
    assert all(found.values()), found
