"""A real vLLM with the connector answers as it does without, in every way in which pages come and do not come.

`make test-vllm` runs it. Each engine has a process of its own, and only one is alive at a time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from . import models

CHILD = Path(__file__).with_name("child.py")
DOCS = Path(__file__).resolve().parents[4] / "docs" / "vllm.md"
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
    options = json.dumps(
        {"store": f"file://{folder}/store-{model}?floor=0", "prefetch_policy": "wait_complete", "pause_seconds": 0.1}
    )
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


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The command of docs/vllm.md, with a model and a folder that are there, and small; gives its address."""
    (command,) = (
        block
        for block in re.findall(r"^```sh\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
        if "MODEL" in block
    )
    command = command.replace("MODEL", str(folder / "llama")).replace("/var/cache/kv", f"{folder}/served")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = [*shlex.split(command), *f"--host 127.0.0.1 --port {port} --enforce-eager --block-size 32".split()]
    more = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with (folder / "served.log").open("w") as log:
        process = subprocess.Popen([sys.executable, *words[1:]], env=os.environ | more, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 300
            while not up(address):
                assert process.poll() is None, (folder / "served.log").read_text()[-4000:]
                assert time.monotonic() < until, "the server does not come up"
                time.sleep(1)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def up(address: str) -> bool:
    try:
        return ask(f"{address}/health") == ""
    except urllib.error.URLError:
        return False


def ask(url: str, body: dict[str, Any] | None = None, method: str | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_the_command_of_the_page_serves_from_the_tier(folder: Path) -> None:
    """Scheduler and worker in processes of their own; the second answer has tokens from outside vLLM's cache."""
    words = " ".join(str(3 + number * 7919 % 500) for number in range(300))
    body = {"model": str(folder / "llama"), "prompt": words, "max_tokens": 8, "temperature": 0}
    with server(folder) as address:
        texts = []
        for _ in range(2):
            texts.append(json.loads(ask(f"{address}/v1/completions", body))["choices"][0]["text"])
            ask(f"{address}/reset_prefix_cache", method="POST")
        (hits,) = re.findall(
            r"^vllm:external_prefix_cache_hits_total{.*} (.*)$", ask(f"{address}/metrics"), re.MULTILINE
        )
    assert texts[0] == texts[1]
    assert float(hits) > 256
