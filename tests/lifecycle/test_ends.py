"""What is left after an engine: nothing. No owner, no thread, no file handle, no object, no memory."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

import pytest

from stagehold import Engine, HostMode, PrefetchPolicy
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.workers import WorkerStore
from stagehold.testing.hand import Hand, small_config

MIB = 1024 * 1024


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def one_life(store=None, **settings) -> weakref.ref[Engine]:
    """An engine that served a little, closed; only a weak reference is left."""
    options = {"store": store} if store is not None else {}
    settings["prefetch_policy"] = PrefetchPolicy.BEST_EFFORT
    with Hand(parts=2, page_part_bytes=512, **options, **settings) as h:
        h.put(h.prompt(8)) if store is None else None
        a, b = h.arrive("a", h.prompt(8)), h.arrive("b", h.prompt(12, 2))
        h.tick(4)
        h.serve(b)
        h.visit(a)
        h.tick(2)
        return weakref.ref(h.engine)


@pytest.mark.parametrize("mode", list(HostMode))
def test_after_a_drained_run_nothing_is_owned_but_the_link(hand, mode):
    """Staging and pins back to zero, every machine over."""
    h = hand(host_memory_mode=mode)
    for number in range(10):
        h.run(f"r{number}", h.prompt(12, number % 4))
        h.tick()
    h.engine.drain(200)
    h.tick(2)
    stats = h.engine.stats()
    assert ({"link": 1}, 0, 0) == (stats.owned, stats.live_machines, h.core.tree.pinned)
    kept = len(h.core.host.pages())
    assert h.config.staging_pages == h.core.staging.free_count + kept
    assert (mode is HostMode.CACHE) == bool(kept)
    assert h.config.device_pages == h.core.room()


def test_no_thread_and_no_file_is_left_after_a_run_on_files(tmp_path):
    """The engine closes the store that it was given, and waits for its workers."""
    threads, files = set(threading.enumerate()), open_files()
    one_life(WorkerStore(FileStore(tmp_path)))
    assert threads == set(threading.enumerate())
    assert files == open_files()


def test_a_store_in_the_middle_of_its_work_is_waited_for(tmp_path):
    """Closing ends what flies, then the workers; buffers go back after that, and not before."""
    begun, ended = [], []

    class Noted(FileStore):
        def put(self, *args):
            begun.append(args)
            super().put(*args)
            ended.append(args)

    threads = set(threading.enumerate())
    with Hand(store=WorkerStore(Noted(tmp_path)), prefetch_policy=PrefetchPolicy.BEST_EFFORT) as h:
        h.run("a", h.prompt(30))
        h.until(lambda: len(begun) > 1)
    assert len(begun) == len(ended) > 1
    assert threads == set(threading.enumerate())
    assert {} == h.engine.stats().owned


def test_an_engine_is_garbage_once_it_is_closed():
    """No registry, no timer, no thread keeps it."""
    alive = one_life()
    gc.collect()
    assert alive() is None


def test_an_engine_that_was_never_closed_is_garbage_too():
    """Forgetting to close leaks nothing in this process."""
    engine = Engine(small_config())
    engine.tick()
    alive = weakref.ref(engine)
    del engine
    gc.collect()
    assert alive() is None


def test_a_hundred_engines_leave_no_memory_behind():
    """Resident memory after the 100th within 4 MiB of that after the 20th, and none of them alive."""
    alive, marks = [], {}
    for number in range(1, 101):
        alive.append(one_life(staging_pages=200, device_pages=400))
        if number in (20, 100):
            gc.collect()
            marks[number] = resident_bytes()
    assert [] == [ref for ref in alive if ref() is not None]
    assert marks[100] - marks[20] <= 4 * MIB


def test_a_long_life_does_not_grow(hand):
    """Books, timers and operations are as small after a thousand requests as after a hundred."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT)

    def sizes() -> tuple[int, ...]:
        core = h.core
        retries = h.engine._parts.retries
        return (
            len(core.requests), len(core.holds), len(core.writes), len(core.spans), len(core.ledger.entries),
            len(core.operations.live), core.clock.armed, len(core.visits), core.beliefs.flying,
            len(retries.waiting), len(retries.untimed), len(h.engine._roster.alive),
        )  # fmt: skip

    def live(number: int) -> None:
        a = h.arrive(f"r{number}", h.prompt(4 + number % 8, number % 9))
        h.tick(1 + number % 4)
        if number % 3:
            h.engine.abort(a)
        else:
            h.serve(a)

    for number in range(100):
        live(number)
    h.engine.drain(100)
    h.tick(30)
    small = sizes()
    for number in range(100, 600):
        live(number)
    h.engine.drain(100)
    h.tick(30)
    assert small == sizes()
