"""The two ends of a World's engine that time is drawn for: a store that is watched, and copies that report late.

Owns which buffers are lent to the store, by address. Changes nothing of what the simulated store promises.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from stagehold.cache.stores.page import HEADER_BYTES, encode_header
from stagehold.cache.stores.protocol import Buffer, Progress
from stagehold.cache.stores.simulated import Medium, SimulatedStore
from stagehold.lifecycle.data import HoldData
from stagehold.testing.shapes import WorldShape


class WatchedStore(SimulatedStore):
    """A simulated store that remembers the address of every buffer it was lent, until the operation is done."""

    def __init__(self, seed: int, shape: WorldShape, medium: Medium) -> None:
        super().__init__(
            seed, delays=shape.delays, rates=shape.rates, pages_per_tick=shape.pages_per_tick, medium=medium
        )
        self.lent: dict[int, tuple[int, ...]] = {}

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self.lent[ticket] = tuple(map(_address, buffers))
        super().get_into(ticket, keys, buffers, tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`."""
        self.lent[ticket] = tuple(map(_address, buffers))
        super().put(ticket, keys, buffers, tick)

    def poll(self, tick: int) -> list[Progress]:
        """See `Store.poll`."""
        reports = super().poll(tick)
        for progress in reports:
            if progress.done:
                self.lent.pop(progress.ticket, None)
        return reports


class CountedStore(SimulatedStore):
    """A simulated store that counts the lookups that it is sent and the pages that it is asked to read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lookups = self.pages_read = 0

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store`."""
        self.lookups += 1
        super().exists(ticket, keys, tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store`."""
        self.pages_read += len(keys)
        super().get_into(ticket, keys, buffers, tick)


def _address(buffer: Buffer) -> int:
    address: int = np.frombuffer(buffer, dtype=np.uint8).ctypes.data
    return address


def medium_of(shape: WorldShape) -> Medium:
    """An empty medium with room for as many pages as the shape says."""
    pages, page_bytes = shape.medium_pages, HEADER_BYTES + shape.config.page_bytes
    return Medium(None if pages is None else pages * page_bytes)


def write_page(medium: Medium, name: bytes, body: bytes) -> None:
    """What another server's put leaves in the store they share."""
    medium.write(name, encode_header(name, memoryview(body)) + body)


class LateCopies:
    """Copies whose end is reported some ticks later, drawn from a seed; their bytes are there at once."""

    def __init__(self, seed: int, ticks: tuple[int, int]) -> None:
        self._dice = random.Random(f"copies {seed}")  # noqa: S311 - reproducible on purpose
        self._ticks = ticks
        self._due: dict[int, int] = {}

    def sent(self, number: int, tick: int) -> None:
        """See `Copies.sent`."""
        self._due[number] = tick + self._dice.randint(*self._ticks)

    def poll(self, tick: int) -> list[int]:
        """See `Copies.poll`."""
        ended = sorted(number for number, due in self._due.items() if due <= tick)
        for number in ended:
            del self._due[number]
        return ended


class Delivers(Enum):
    """What a hold delivers at a commit, against what was promised."""

    ALL = auto()
    SOME = auto()
    NONE = auto()


class Delivery:
    """The engine's `deliver`: what the World says for the commit that comes."""

    def __init__(self) -> None:
        self.next = Delivers.ALL

    def __call__(self, hold: HoldData, live: int, promised: int) -> int:
        """The page up to which the hold can be spliced; 0 if it brings nothing."""
        match self.next:
            case Delivers.ALL:
                return max(hold.last, live, promised)
            case Delivers.SOME:
                return promised - 1
            case Delivers.NONE:
                return 0
