"""How fast host memory is: copying, touching for the first time, and locking; measured on a small piece of it."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import time
from collections.abc import Iterator

import numpy as np

from stagehold.operate.doctor.check import Check, size
from stagehold.operate.doctor.machine import has_cuda

PIECE_BYTES = 64 << 20
LEAST_COPY = 500 << 20
"""Bytes a second below which host memory is slower than a good disk, so that a host tier is of no use."""


def look(staging_bytes: int) -> Iterator[Check]:
    """Copy, then touch and lock a piece; say what that means for `staging_bytes`."""
    yield _copies()
    yield _first_touch(staging_bytes)


def _copies() -> Check:
    source, target = np.ones(PIECE_BYTES, np.uint8), np.zeros(PIECE_BYTES, np.uint8)
    best = 0.0
    for _ in range(3):
        begun = time.perf_counter()
        target[:] = source
        best = max(best, PIECE_BYTES / (time.perf_counter() - begun))
    ok = best >= LEAST_COPY
    fix = "this machine's memory is busy or its processor throttled: look for a CPU quota and for neighbours"
    return Check("staging bandwidth", ok=ok, detail=f"{size(best)} a second, one thread", fix="" if ok else fix)


def _first_touch(staging_bytes: int) -> Check:
    """Pages of the kernel are given at first touch: that, and locking, is what a large staging costs at start."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    piece = PIECE_BYTES if limit in (resource.RLIM_INFINITY, -1) else min(PIECE_BYTES, limit // 2)
    with mmap.mmap(-1, PIECE_BYTES) as area:
        begun = time.perf_counter()
        for place in range(0, PIECE_BYTES, mmap.PAGESIZE):
            area[place] = 1
        touched = PIECE_BYTES / (time.perf_counter() - begun)
        locked = _lock(area, piece // mmap.PAGESIZE * mmap.PAGESIZE)
    told = [f"touched at {size(touched)} a second", locked]
    if staging_bytes:
        told.append(f"{size(staging_bytes)} of staging take about {staging_bytes / touched:.1f} s at start")
    ok = not has_cuda() or limit in (resource.RLIM_INFINITY, -1) or limit >= staging_bytes
    fix = f"raise the limit of locked memory to {staging_bytes} bytes (ulimit -l unlimited, LimitMEMLOCK=infinity)"
    return Check("host memory", ok=ok, detail=", ".join(told), fix="" if ok else fix)


def _lock(area: mmap.mmap, count: int) -> str:
    if not count:
        return "none may be locked"
    view = (ctypes.c_char * PIECE_BYTES).from_buffer(area)
    library = ctypes.CDLL(None, use_errno=True)
    begun = time.perf_counter()
    failed = library.mlock(ctypes.byref(view), ctypes.c_size_t(count))
    seconds = time.perf_counter() - begun
    if failed:
        told = f"locking {size(count)} fails: {os.strerror(ctypes.get_errno())}"
    else:
        library.munlock(ctypes.byref(view), ctypes.c_size_t(count))
        told = f"locked at {size(count / seconds)} a second"
    del view
    return told
