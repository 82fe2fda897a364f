"""Copies whose bytes move late, as on a device: nobody is given an end of one in flight, and a forward that waits for
its layers reads no byte too early.
"""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from stagehold import ComponentConfig
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.kernels.lanes import CopyLane
from stagehold.lifecycle.copies import LaneCopies, PromptCopies
from stagehold.specs.hold import HoldState
from stagehold.testing.service import Service

SIZES = {"device_pages": 40, "staging_pages": 12, "parts": 1, "page_part_bytes": 8}


class LateLane(CopyLane):
    """Each copy is done by a poll drawn from the seed, or when it is waited for, and not before."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = Random(seed)
        self._late: deque = deque()

    def submit_steps(self, copy, behind=None) -> int:
        before = behind.submitted if behind is not None else 0
        self._late.append((copy, behind, before))
        self._next_ticket += 1
        self._under_way.append((self._next_ticket - 1, None))
        return self._next_ticket - 1

    def run_to(self, count: int) -> None:
        """Do all copies below ticket `count`."""
        while self._late and self.submitted - len(self._late) < count:
            copy, behind, before = self._late.popleft()
            if behind is not None:
                behind.run_to(before)
            deque(copy(), maxlen=0)

    def poll(self) -> list[int]:
        done = self.submitted - len(self._late)
        self.run_to(done + (self._dice.random() < 0.2))
        told = []
        while self._under_way and self._under_way[0][0] < self.submitted - len(self._late):
            told.append(self._under_way.popleft()[0])
        return told

    def drain(self) -> list[int]:
        self.run_to(self.submitted)
        return self.poll()

    def wait_step(self, step: int) -> None:
        self.run_to(self.submitted)


def late_service(seed: int, *, copies=None, waits: bool = True) -> Service:
    """A service on late lanes; its model waits for the layers that it reads, or does not."""
    store = SimulatedStore(seed, delays=Delays((1, 2), (1, 3), (1, 2)))
    service = Service(store, page_bytes=1024, pace_seconds=0.0, staging_pages=24)
    core, device = service.engine._parts.core, service.engine.device_bytes
    device.loads, device.saves = LateLane(seed), LateLane(seed + 1)
    core.copies = LaneCopies(core.tensors) if copies is None else copies
    read = service.runner.read

    def read_when_loaded(work) -> None:
        for layer in range(len(device.layers) if waits else 0):
            device.wait_layer(layer)
        read(work)

    service.runner.read = read_when_loaded
    return service


def twice(service: Service) -> None:
    """Six prompts are computed and written, and twice come back to an empty device, crowded in staging."""
    service.attach()
    service.serve(range(6))
    service.drain()
    for _ in range(2):
        service.engine._parts.core.tree.evict(10**6)
        service.serve(range(6))


@pytest.mark.parametrize("seed", range(4))
def test_late_copies_bring_every_byte(seed):
    """Through saves, a store and loads; the books are counted after every tick."""
    with late_service(seed) as service:
        twice(service)
        assert [] == service.breaches()
        assert service.engine.stats().spliced >= 6 * 8 * 16
        lanes = service.engine.device_bytes.loads, service.engine.device_bytes.saves
        assert min(lane.submitted for lane in lanes) >= 2
    assert {} == service.engine.stats().owned


def test_a_forward_that_does_not_wait_would_be_seen():
    """Planted: it reads slots whose loads are under way."""
    with late_service(0, waits=False) as service:
        twice(service)
        assert any("phantoms" in breach for breach in service.breaches())


def test_an_end_that_is_told_too_early_would_be_seen():
    """Planted: buffers go to the store, or to the next hold, before the copy has been there."""
    with late_service(0, copies=PromptCopies()) as service:
        twice(service)
        assert [] != service.breaches()


def bytes_of(h, tokens) -> dict[str, list[int]]:
    """What each component shows of the last page, or of the checkpoint at its end."""
    return {name: h.shown(tokens, 7, 8, name) for name in h.core.bytes}


def test_every_component_is_loaded_and_let_go_by_its_own_lanes(hand):
    """The hold keeps the staging of all until the slowest has ended; a forward waits for each."""
    window = ComponentConfig(name="swa", kind="sliding_window", window_tokens=48, **SIZES)
    state = ComponentConfig(name="state", kind="checkpoint", **SIZES)
    h = hand(components=(window, state), parts=2, page_part_bytes=8, chunk_tokens=64, pin_fraction=0.0)
    core, tokens = h.core, h.prompt(8)
    for seed, one in enumerate(core.bytes.values()):
        one.device.loads = LateLane(seed)
    core.copies = LaneCopies(*core.bytes.values())
    h.put_all(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    hold = h.hold_of(a)
    h.admit(a)
    stored = {name: [h.stored_byte(name, 7)] for name in core.bytes}
    before = bytes_of(h, tokens)
    assert all(before[name] != stored[name] for name in core.bytes)
    for name, one in core.bytes.items():
        one.device.wait_layer(0)
        assert stored[name] == bytes_of(h, tokens)[name]
    assert HoldState.LOADING is hold.state
    assert all(stock.staging_free() < stock.size for stock in core.stocks)
    h.until(lambda: hold.state is HoldState.SPLICED, 100)
    assert all(stock.staging_free() == stock.size for stock in core.stocks)


class Passed:
    """Stands for the lanes of one component, which have passed `at` of the copies sent off."""

    sent = at = 0

    def mark(self) -> int:
        self.sent += 1
        return self.sent

    def ended(self, mark: int) -> bool:
        return mark <= self.at


def test_operations_end_in_the_order_they_were_sent_in():
    """Each once, and not before the lanes of all components have passed it."""
    one, two = Passed(), Passed()
    copies = LaneCopies(one, two)
    for number in (3, 5, 8):
        copies.sent(number, 0)
    assert [] == copies.poll(1)
    one.at = 3
    assert [] == copies.poll(2)
    two.at = 2
    assert ([3, 5], []) == (copies.poll(3), copies.poll(4))
    two.at = 3
    assert [8] == copies.poll(5)


def test_a_snapshot_has_its_own_copies_and_settled_bytes(hand):
    """What was under way when it was taken has ended in it; going back to it tells the end again."""
    h = hand(parts=2, page_part_bytes=32, staging_pages=80)
    core = h.core
    core.copies = LaneCopies(core.tensors)
    a = h.arrive("a", h.prompt(8))
    h.serve(a)
    h.tick()
    writing = [w.state.name for w in core.writes.values()]
    snapshot = h.engine.snapshot()
    for _ in range(2):
        h.until(lambda: not core.writes, 100)
        assert 8 == h.engine.stats().stored_pages
        h.engine.restore(snapshot)
        assert writing == [w.state.name for w in core.writes.values()] == ["COPYING"]
