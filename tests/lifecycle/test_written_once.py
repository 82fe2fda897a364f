"""What is in the store is not written again: a prompt that is served three times changes no file after the first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stagehold import Admission, Engine, HostMode, Namespace
from stagehold.cache.stores.open import open_store
from stagehold.testing.hand import small_config

SPACE = Namespace("three times")
PROMPTS = [508, 496]  # 31 pages and what is left to compute; 31 pages, the last of which is computed each time


def serve(engine: Engine, rid: str, tokens: range) -> int:
    """One request from arrival to end, its writes drained; returns what it reused."""
    handle = engine.arrive(rid, list(tokens), SPACE, 1)
    while not isinstance(admission := _visit(engine, handle), Admission) or not admission.admitted:
        time.sleep(0.001)
    engine.extend(handle, len(tokens) - admission.hit_tokens)
    engine.publish(handle, len(tokens))
    engine.finish(handle)
    engine.drain(5_000, pause=lambda: time.sleep(0.001))
    return admission.hit_tokens


def _visit(engine: Engine, handle):
    engine.tick()
    plan = engine.select(handle, 1_000)
    return engine.commit(plan) if hasattr(plan, "serial") else plan


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file of the store with its size and its number, which a page that is written anew does not keep.

    Its time says when the page was last used, so that a read moves it.
    """
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_ino) for path in found}


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("form", ["pages", "packed"])
@pytest.mark.parametrize("mode", list(HostMode))
def test_a_prompt_served_three_times_is_written_once(tmp_path: Path, mode: HostMode, form: str, prompt: int) -> None:
    """From the device, and from the store once the tree is empty; the third time by another engine."""
    config = small_config(host_memory_mode=mode, parts=2, page_part_bytes=512)

    def engine() -> Engine:
        built = Engine(config, store=open_store(f"file:{tmp_path}?form={form}", config.page_bytes), strict=True)
        while built.attachment.name == "ATTACHING":
            built.tick()
            time.sleep(0.001)
        return built

    first = engine()
    assert 0 == serve(first, "one", range(prompt))
    before = files(tmp_path)
    assert serve(first, "two", range(prompt)) > 0
    first.flush()
    assert serve(first, "two again", range(prompt)) > 0
    assert before == files(tmp_path)
    stored = first.stats().stored_pages
    first.close()
    second = engine()
    assert serve(second, "three", range(prompt)) > 0
    assert (prompt // 16, 0) == (stored, second.stats().stored_pages)
    second.close()
