"""K22: views of tensors were kept with each entry, and a view keeps the whole storage alive; memory grew without end.

Here what a scheduler is given is numbers, and what a store is lent are views into one buffer that is as old as the
engine; when the operation is over, nobody has the view any more.
"""

from __future__ import annotations

import gc
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np
import torch

from stagehold.lifecycle.core import Core
from stagehold.testing.hand import Hand

BYTES = {"parts": 2, "page_part_bytes": 512}


def numbers_only(value: object) -> bool:
    """Whether a value is made of numbers, names and members of closed sets, however deep."""
    if isinstance(value, tuple):
        return all(numbers_only(one) for one in value)
    if is_dataclass(value):
        return all(numbers_only(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, int | str | Enum)


def views() -> int:
    """Objects of this process through which memory can be kept."""
    gc.collect()
    return sum(type(one) in (memoryview, torch.Tensor, np.ndarray) for one in gc.get_objects())


def lives(h: Hand, first: int, count: int) -> None:
    """Requests that fetch, load, write, give up and miss; nobody is left."""
    for number in range(first, first + count):
        tokens = h.prompt(6, number % 7)
        if number % 3:
            h.put(tokens)
        handle = h.arrive(f"r{number}", tokens)
        h.tick(number % 5)
        if number % 2 and getattr(h.visit(handle), "admitted", False):
            h.compute(handle)
        h.engine.abort(handle)
        h.shrink(tokens, 0)
    h.tick(40)


def test_the_face_hands_out_numbers(hand):
    """A plan, an admission, an extension, a page table and a skip."""
    h = hand(**BYTES)
    h.put(h.prompt(8))
    a, b = h.arrive("a", h.prompt(8)), h.arrive("b", h.prompt(8, 2))
    h.tick()
    skip = h.visit(b)
    h.tick(2)
    plan = h.engine.select(a, 100)
    admission = h.engine.commit(plan)
    extension = h.engine.extend(a, 17)
    for handed in (skip, plan, admission, extension, h.engine.page_slots(a)):
        assert numbers_only(handed), handed


def test_buffers_are_views_into_the_one_staging_tensor(hand):
    """Nothing is allocated for a fetch or a put."""
    h = hand(**BYTES)
    staging = h.core.tensors.staging
    first = staging.tensor.data_ptr()
    for buffer in h.core.buffers(h.core.stocks.spine, range(h.config.staging_pages)):
        at = np.frombuffer(buffer, dtype=np.uint8).ctypes.data
        assert first <= at < first + staging.tensor.numel()


def test_three_hundred_requests_leave_no_view_behind(hand):
    """As many as after fifty."""
    h = hand(**BYTES)
    lives(h, 0, 50)
    before = views()
    lives(h, 50, 300)
    assert views() <= before


def test_a_view_that_is_kept_with_each_fetch_would_be_seen(hand, monkeypatch):
    """Planted: whoever lends a buffer remembers it."""
    h = hand(**BYTES)
    lives(h, 0, 50)
    before, kept, buffers = views(), [], Core.buffers
    monkeypatch.setattr(Core, "buffers", lambda self, *what: kept.append(buffers(self, *what)) or kept[-1])
    lives(h, 50, 100)
    assert views() > before + 50
