"""Processes that simulate side by side, and end when whoever started them does, however that ended.

It owns their start and their end. They come of one process that has imported what they need and has no threads, so that
a further one costs no start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread

IMPORTED = ["stagehold.lab.cells", "torch"]


@contextmanager
def workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. When the block is left by an exception, what they are at is given up, and they end at once."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    before = active_children()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    except BaseException:
        for child in active_children():
            if child not in before:
                child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Nobody reads what a worker finds when its parent was killed, and nobody would end it."""
    Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = parent_process()
    assert parent is not None, "a worker was started by somebody"
    parent.join()
    os._exit(1)
