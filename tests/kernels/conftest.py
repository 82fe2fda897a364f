"""What the forms of a copy are held against, and Triton in its interpreter."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from stagehold.kernels import forms

PAGED = "stagehold.kernels.paged"


@pytest.fixture
def forgotten(monkeypatch):
    """Nothing has been looked for yet, neither Triton nor a device, and what is found is forgotten afterwards."""
    from stagehold.kernels import device

    caches = (forms.triton_form, device._fault)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.delitem(sys.modules, PAGED, raising=False)
    yield
    sys.modules.pop(PAGED, None)
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def interpreted(monkeypatch, forgotten):
    """The module of the Triton kernel, its kernel run by the interpreter on CPU tensors."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return importlib.import_module(PAGED)


class Tensors:
    """A layer-first pool of 11 slots and page-first pages, 9 of them, both full of seeded bytes."""

    def __init__(self, parts: int, size: int) -> None:
        rng = np.random.default_rng(parts * 1000 + size)
        self.pool = torch.from_numpy(rng.integers(0, 256, (parts, 11, size), dtype=np.uint8))
        self.pages = torch.from_numpy(rng.integers(0, 256, (9, parts, size), dtype=np.uint8))

    def gathered(self, slots, indices) -> torch.Tensor:
        """What the pages are to be afterwards, byte by byte."""
        expected = self.pages.clone()
        for slot, index in zip(slots, indices, strict=True):
            for part in range(self.pool.shape[0]):
                expected[index, part] = self.pool[part, slot]
        return expected

    def scattered(self, slots, indices, parts) -> torch.Tensor:
        """What the pool is to be afterwards, if only `parts` were copied."""
        expected = self.pool.clone()
        for slot, index in zip(slots, indices, strict=True):
            for part in parts:
                expected[part, slot] = self.pages[index, part]
        return expected


@pytest.fixture
def tensors():
    """Builds the two tensors for a number of parts and the bytes of one."""
    return Tensors


class Stream:
    """Work in order, each piece waiting for the events before it; nothing happens until the device `runs`."""

    def __init__(self, machine: Machine, device: str) -> None:
        self.machine = machine
        self.device = device
        self.queue: list = []

    def wait_event(self, event: Event) -> None:
        self.queue.append(event)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def record_event(self) -> Event:
        event = Event()
        self.queue.append(event.happen)
        return event

    def synchronize(self) -> None:
        while self.queue:
            assert self.machine.run_one(self) or any(self.machine.run_one(other) for other in self.machine.all)


class Event:
    """Happens when its stream comes to it."""

    def __init__(self) -> None:
        self.happened = False

    def happen(self) -> None:
        self.happened = True

    def query(self) -> bool:
        return self.happened


class Machine:
    """A device with streams, in place of torch.cuda: what is queued runs when it is told to, in any legal order."""

    def __init__(self) -> None:
        self.all: list[Stream] = []
        self.forward = self._now = self.Stream()

    def Stream(self, device: str = "sim") -> Stream:  # noqa: N802
        self.all.append(Stream(self, device))
        return self.all[-1]

    def current_stream(self, device: str) -> Stream:
        assert device == "sim"
        return self._now

    @contextmanager
    def stream(self, stream: Stream):
        before, self._now = self._now, stream
        yield
        self._now = before

    def do(self, work) -> None:
        """Queue `work` on the current stream."""
        self._now.queue.append(work)

    def run_one(self, stream: Stream) -> bool:
        """Let `stream` do its next piece; false where it has none or waits."""
        if not stream.queue:
            return False
        head = stream.queue[0]
        if isinstance(head, Event) and not head.happened:
            return False
        stream.queue.pop(0)
        if not isinstance(head, Event):
            head()
        return True

    def run(self, dice) -> None:
        """Everything, streams taken by lot."""
        while able := [stream for stream in self.all if stream.queue]:
            assert any(self.run_one(stream) for stream in dice.sample(able, len(able))), "the streams wait in a circle"


@pytest.fixture
def machine():
    """A device with streams."""
    return Machine()
