"""Engines over page files, whose processes are killed, race each other, or find the disk full.

Each engine runs in a process of its own, forked from one that has loaded everything.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from stagehold.cache.stores.inspect import verify_pages
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Verdict
from stagehold.testing.service import PAGE_SIZE, PROMPT_PAGES, Service

PAGE_BYTES = 1 << 16
RUNS = 20


def in_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Run a function of this file in a process of its own; return what it returned, by way of JSON."""
    code = "import json, runpy, sys; found = runpy.run_path(sys.argv[1])[sys.argv[2]](*sys.argv[3:]); print(found)"
    command = [sys.executable, "-c", code, __file__, function.__name__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def open_service(url: str) -> Service:
    service = Service(open_store(url, PAGE_BYTES), page_bytes=PAGE_BYTES, wait_base_ticks=512)
    service.attach()
    return service


def forked(action: Callable[[int], None]) -> tuple[int, int]:
    """Do it in a child, which gets the writing end of a pipe; return its process id and the reading end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            action(writing)
        except BaseException:  # noqa: BLE001 - a child has nobody to raise to
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def heard(child: int, reading: int) -> str:
    """Return all that a child says until it ends."""
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def report(service: Service) -> str:
    return json.dumps([service.breaches(), service.served.store_hit_tokens, service.engine.stats().stored_pages])


def die_while_writing(url: str, runs: str) -> str:
    """Kill an engine in the middle of its writes, then serve the same prompts; over and over."""
    dice, found = random.Random(13), []
    for run in range(int(runs)):
        families = range(6 * run, 6 * run + 6)

        def write(pipe: int, families: range = families) -> None:
            service = open_service(url)
            service.submit(families)
            while not service.step().finished:
                pass
            os.write(pipe, b".")
            service.serve(families)
            service.drain()
            os.write(pipe, b"all")

        def read(pipe: int, families: range = families) -> None:
            with open_service(url) as service:
                service.serve(families)
                os.write(pipe, report(service).encode())

        child, pipe = forked(write)
        os.read(pipe, 1)
        time.sleep(dice.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        found.append([heard(child, pipe), *json.loads(heard(*forked(read)))])
    return json.dumps(found)


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_kill_while_writing_costs_pages_and_nothing_else(tmp_path, form):
    """Twenty times: right bytes from what had been written, the rest computed, and no page file is wrong."""
    found = in_process(die_while_writing, f"file://{tmp_path}?floor=0&form={form}&capacity=64MiB", RUNS)
    whole = 6 * PROMPT_PAGES * PAGE_SIZE
    assert [breaches for _, breaches, _, _ in found] == [[]] * RUNS
    assert sum(hits < whole for _, _, hits, _ in found) >= RUNS / 2, "the kills came too late to hit a write"
    verdicts = verify_pages(tmp_path)
    assert verdicts[Verdict.HIT] > RUNS * PROMPT_PAGES
    assert set(verdicts) <= ({Verdict.HIT} if form == "pages" else {Verdict.HIT, Verdict.CORRUPT})


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_kill_leaves_tenants_their_places(tmp_path, form):
    """The first of them while it takes its place or writes: the store opens, and who was there goes on in its part."""
    url = f"file://{tmp_path}?floor=0&form={form}&capacity=64MiB&tenants=1"
    found = in_process(die_while_writing, url, 2)
    assert [breaches for _, breaches, _, _ in found] == [[]] * 2
    with open_service(url) as service:
        for family in range(6):
            service.serve([family])
            service.drain()
        assert service.breaches() == []
    verdicts = verify_pages(tmp_path)
    assert verdicts[Verdict.HIT] > 6 * PROMPT_PAGES
    assert set(verdicts) <= ({Verdict.HIT} if form == "pages" else {Verdict.HIT, Verdict.CORRUPT})
    assert sum(len(path.name) == 32 for path in (tmp_path / "tenants").iterdir()) == 1


def race(url: str) -> str:
    """Four engines at once serve the same prompts, each beginning elsewhere, in several lives."""

    def serve(rank: int) -> Callable[[int], None]:
        def act(pipe: int) -> None:
            said = []
            for life in range(3):
                with open_service(url) as service:
                    service.serve([(5 * rank + 3 * life + index) % 12 for index in range(12)])
                    service.drain()
                    said.append([*json.loads(report(service)), list(service.store.errors)])
            os.write(pipe, json.dumps(said).encode())

        return act

    children = [forked(serve(rank)) for rank in range(4)]
    return json.dumps([json.loads(heard(*child)) for child in children])


@pytest.mark.parametrize("form", ["pages&capacity=4MiB", "packed&capacity=4MiB", "packed&capacity=8MiB&tenants=1"])
def test_four_engines_may_write_the_same_keys(tmp_path, form):
    """Under a capacity that evicts all the time: right bytes, no failed request, no error, and hits."""
    found = in_process(race, f"file://{tmp_path}?floor=0&form={form}")
    lives = [life for rank in found for life in rank]
    assert [(breaches, errors) for breaches, _, _, errors in lives] == [([], [])] * 12
    assert sum(hits for _, hits, _, _ in lives) > 0
    assert sum(stored for _, _, stored, _ in lives) > 0
    assert set(verify_pages(tmp_path)) == {Verdict.HIT}


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_full_disk_costs_hits_and_nothing_else(small_disk, form):
    """Somebody else fills the disk: what is there is right, what is new is computed, the store stays in use."""
    url = f"file://{small_disk.root}/kv?floor=0&form={form}"
    with open_service(url) as service:
        service.serve(range(2))
        service.drain()
        small_disk.fill_up()
        service.serve(range(10, 14))
        service.drain()
        assert service.breaches() == []
    with open_service(url) as service:
        service.serve([*range(2), *range(10, 14)])
        assert service.breaches() == []
    assert set(verify_pages(small_disk.root / "kv")) <= {Verdict.HIT}
