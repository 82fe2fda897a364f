"""The worker's side: it copies pages between vLLM's blocks and the pool, as it is told, and says what was copied.

It decides nothing. A save has been made when the step ends, before vLLM can give its blocks to anybody else: so no
preemption has to wait for one, and no block is held back. A load that vLLM waits for is made before the forward pass;
the others by a thread of its own, into blocks that vLLM keeps until they are reported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue

import torch

from stagehold.adapters.vllm.blocks import LayerBlocks
from stagehold.adapters.vllm.layout import Layout
from stagehold.adapters.vllm.memory import mapped
from stagehold.adapters.vllm.options import ConnectorRefused
from stagehold.adapters.vllm.orders import Done, Job, Orders

LOG = logging.getLogger("stagehold")


class WorkerSide:
    """One worker. Its calls come from one thread, in the order in which vLLM makes them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._groups: dict[int, list[LayerBlocks]] = {}
        self._component = {group: kind.name for kind in layout.kinds for group in kind.groups}
        self._pools: dict[str, torch.Tensor] = {}
        self._orders: Orders | None = None
        self._begun = self._served = 0  # serials of the latest orders whose loads, and whose saves, were made
        self._spoiled: set[str] = set()
        self._invalid: set[int] = set()
        self._lane = Lane(self._load)

    def register(self, caches: Mapping[str, torch.Tensor]) -> None:
        """Take vLLM's tensors, by layer. Raises ConnectorRefused where one is missing or not as expected."""
        for kind in self._layout.kinds:
            for layer in kind.layers:
                if layer.name not in caches:
                    raise ConnectorRefused(f"layer {layer.name}: vLLM registered no cache; it has {', '.join(caches)}")
                blocks = LayerBlocks(layer, caches[layer.name], self._layout.n_blocks)
                self._groups.setdefault(layer.group, []).append(blocks)

    def bind(self, orders: Orders) -> None:
        """The orders of the step that begins."""
        self._orders = orders
        for pool in orders.pools:
            if pool.component not in self._pools:
                self._pools[pool.component] = mapped(pool)

    def clear(self) -> None:
        """The step is over."""
        self._orders = None

    def start_loads(self) -> None:
        """Make the loads that the forward pass reads, and send off the others; once for each step's orders."""
        orders = self._orders
        if orders is None or orders.serial == self._begun:
            return
        self._begun = orders.serial
        for job in orders.before:
            self._load_now(job)
        for job in orders.beside:
            self._lane.send(job)
        for job in orders.broken_before:
            self._invalid |= job.blocks
        for job in orders.broken_beside:
            self._lane.fail(job)

    def _load_now(self, job: Job) -> None:
        """A load that fails is told by its blocks, where they say whose they are; among several groups they do not."""
        try:
            self._load(job)
        except Exception:
            if self._layout.n_groups > 1:
                raise
            LOG.exception("request %s: its pages could not be loaded, and will be computed", job.rid)
            self._invalid |= job.blocks

    def _load(self, job: Job) -> None:
        for part in job.copies:
            pool = self._pools[self._component[part.group]]
            for layer in self._groups[part.group]:
                layer.load(pool, part.slots, part.blocks)

    def make_saves(self) -> None:
        """After the forward pass: copy what it has filled."""
        orders = self._orders
        if orders is None or orders.serial == self._served:
            return
        self._served = orders.serial
        for job in orders.saves:
            try:
                self._save(job)
            except Exception:
                LOG.exception("request %s: its pages could not be saved", job.rid)
                self._spoiled.add(job.rid)

    def _save(self, job: Job) -> None:
        for part in job.copies:
            pool = self._pools[self._component[part.group]]
            for layer in self._groups[part.group]:
                layer.save(part.blocks, pool, part.slots)

    def results(self) -> tuple[set[str], set[str]]:
        """Requests whose loads have ended since the last call, and those of them whose loads failed."""
        return self._lane.ended()

    def invalid_blocks(self) -> set[int]:
        """Blocks whose load before the forward pass failed, since the last call."""
        found, self._invalid = self._invalid, set()
        return found

    def done(self) -> Done:
        """What was saved, for the scheduler's side."""
        spoiled, self._spoiled = frozenset(self._spoiled), set()
        return Done(self._served, spoiled)

    def close(self) -> None:
        """Let the loads that were sent off end."""
        self._lane.close()


class Lane:
    """A thread that makes loads one after the other."""

    def __init__(self, load: Callable[[Job], None]) -> None:
        self._load = load
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._failed: set[str] = set()
        self._thread: threading.Thread | None = None

    def send(self, job: Job) -> None:
        """Queue a load; the first one starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="stagehold-loads", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def fail(self, job: Job) -> None:
        """Report a load as failed that was never made."""
        with self._lock:
            self._ended.add(job.rid)
            self._failed.add(job.rid)

    def ended(self) -> tuple[set[str], set[str]]:
        """Those that have ended and those that failed, told once."""
        with self._lock:
            found = self._ended, self._failed
            self._ended, self._failed = set(), set()
        return found

    def close(self) -> None:
        """Make what was queued, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._load(job)
            except Exception:
                self.fail(job)
                LOG.exception("request %s: its pages could not be loaded, and will be computed", job.rid)
            else:
                with self._lock:
                    self._ended.add(job.rid)
