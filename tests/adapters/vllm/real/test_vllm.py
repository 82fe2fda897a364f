"""A real vLLM with the connector answers as it does without, in every way in which pages come and do not come.

`make test-vllm` runs it. Each engine has a process of its own, and only one is alive at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from . import models

CHILD = Path(__file__).with_name("child.py")
MODELS = ("llama", "gemma")
SMALL = {"llama": 30, "gemma": 56}
"""Blocks of which three growing requests are one too many."""
DIGITS = 1e-5

Found = dict[str, Any]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, and the stores that servers leave for those after them."""
    root = tmp_path_factory.mktemp("vllm")
    for name in MODELS:
        models.save(name, root / name)
    return root


@cache
def serve(folder: Path, model: str, options: str, *acts: str) -> Found:
    """One engine in a process of its own."""
    run = subprocess.run(
        [sys.executable, str(CHILD), str(folder / model), options, *acts],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    found: Found = json.loads(run.stdout.splitlines()[-1])
    return found


def without(folder: Path, model: str) -> Found:
    """What vLLM answers alone, with room for all."""
    return serve(folder, model, "none", "cold", "full", "crowd")


def beside(folder: Path, model: str) -> Found:
    """Loads beside steps, in few blocks, with a store."""
    options = {"blocks": SMALL[model], "pool_pages": 200, "store": f"file://{folder}/store-{model}?floor=0"}
    return serve(folder, model, json.dumps(options), "cold", "warm", "full", "crowd", "aborted", "failed")


def before(folder: Path, model: str) -> Found:
    """Loads before a step. One that fails can only be told where there is one group of layers."""
    options = {"blocks": SMALL[model], "pool_pages": 200, "loads": "sync"}
    acts = ("cold", "warm", "full", "crowd", *(("failed",) if model == "llama" else ()))
    return serve(folder, model, json.dumps(options), *acts)


def same(expected: Found, found: Found) -> None:
    """The same tokens, and log-probabilities that differ by less than 1e-5."""
    assert expected["tokens"] == found["tokens"]
    assert len(expected["logprobs"]) == len(found["logprobs"]) > 0
    for one, other in zip(expected["logprobs"], found["logprobs"], strict=True):
        assert one == pytest.approx(other, abs=DIGITS)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", [beside, before])
def test_cold_warm_and_full(folder: Path, model: str, way: Any) -> None:
    """Nothing, all but the rest of a block, and all but the last block are loaded."""
    alone, found = without(folder, model), way(folder, model)
    for act, like, cached in (("cold", "cold", 0), ("warm", "cold", 288), ("full", "full", 256)):
        same(alone[like], found[act])
        assert cached == found[act]["cached"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", [beside, before])
def test_preempted_requests_go_on_from_the_tier(folder: Path, model: str, way: Any) -> None:
    """A pool too small for three of them."""
    found = way(folder, model)["crowd"]
    assert found["preemptions"]
    same(without(folder, model)["crowd"], found)


@pytest.mark.parametrize("model", MODELS)
def test_a_load_that_was_given_up(folder: Path, model: str) -> None:
    """Blocks come back once it has ended, and the next request is served from the tier."""
    found = beside(folder, model)["aborted"]
    assert 288 == found["cached"]
    same(without(folder, model)["cold"], found)


@pytest.mark.parametrize(("model", "way"), [("llama", beside), ("gemma", beside), ("llama", before)])
def test_a_load_that_failed(folder: Path, model: str, way: Any) -> None:
    """Computed, and right."""
    same(without(folder, model)["cold"], way(folder, model)["failed"])


@pytest.mark.parametrize("model", MODELS)
def test_a_second_engine_is_served_from_the_first_ones_store(folder: Path, model: str) -> None:
    """Another process, with nothing but the folder."""
    beside(folder, model)
    options = json.dumps({"store": f"file://{folder}/store-{model}?floor=0", "prefetch_policy": "wait_complete"})
    found = serve(folder, model, options, "cold")
    assert 288 == found["cold"]["cached"]
    assert 288 == found["counts"]["store_hit_tokens"]
    same(without(folder, model)["cold"], found["cold"])


@pytest.mark.parametrize("model", MODELS)
def test_a_store_that_promises_and_always_fails(folder: Path, model: str) -> None:
    """It delays an answer, by a bounded number of steps, and changes nothing of it."""
    options = json.dumps({"store": "file:///unused", "liar": True})
    found = serve(folder, model, options, "cold")
    assert 0 == found["cold"]["cached"]
    assert found["steps"] < 1000
    same(without(folder, model)["cold"], found["cold"])
