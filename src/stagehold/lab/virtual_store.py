"""The simulated store on a clock of its own: one tick of it is the time that a page takes on the link.

It owns the virtual clock, and what passed over the link. Scheduler passes take as long as they take; so neither
bandwidth nor latency may be told in them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Buffer, Progress, Verdict
from stagehold.cache.stores.simulated import Delays, Link, Medium, SimulatedStore
from stagehold.lab.virtual_reads import Reads

NS = 1_000_000_000


class VirtualClock:
    """Nanoseconds since the start of the trace, and before it while the engine gets ready."""

    def __init__(self) -> None:
        self.now_ns = -60 * NS


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """What lies between server and store: bytes a second both ways, and latencies of an operation, in ms."""

    bytes_per_second: float = 20e9
    latency_ms: tuple[float, float] = (0.5, 2.0)

    def __post_init__(self) -> None:
        least, most = self.latency_ms
        if self.bytes_per_second <= 0 or not 0 <= least <= most:
            raise ValueError(f"expected a speed above zero and latencies 0 <= least <= most, got {self}")

    def page_ns(self, page_bytes: int) -> int:
        """How long a page takes."""
        return max(1, round(page_bytes / self.bytes_per_second * NS))

    def delays(self, page_bytes: int) -> Delays:
        """The latencies in page times; an answer never comes in the moment of its question."""
        page_ns = self.page_ns(page_bytes)
        least, most = (max(1, -(-round(ms * 1_000_000) // page_ns)) for ms in self.latency_ms)
        return Delays(exists=(least, most), get=(least, most), put=(least, most))


class VirtualStore:
    """A store of pages of `page_bytes`, whatever few bytes stand for them; see the module.

    `capacity_bytes` counts pages at their full size. `read_pages` and `written_pages` have passed over the link, and
    `lookups` have been answered. `reads` knows the pages that were read by their content.
    """

    def __init__(
        self, clock: VirtualClock, page_bytes: int, body_bytes: int, speed: LinkSpeed, *, seed: int, capacity_bytes: int
    ) -> None:
        self.name = "virtual"
        self.read_pages = 0
        self.written_pages = 0
        self.lookups = 0
        self.reads = Reads()
        self._clock = clock
        self._page_ns = speed.page_ns(page_bytes)
        room = (capacity_bytes // page_bytes) * (HEADER_BYTES + body_bytes) if capacity_bytes else None
        self.medium = Medium(room)
        self._inner = SimulatedStore(seed, delays=speed.delays(page_bytes), medium=self.medium, link=Link(1))
        self._gets: dict[int, Sequence[Buffer]] = {}
        self._came: Counter[int] = Counter()  # pages that a fetch has an answer for
        self._puts: set[int] = set()
        self._in_flight: set[int] = set()

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way."""
        return not self._in_flight

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:  # noqa: ARG002 - the clock is ours
        """See `Store.exists`."""
        self._in_flight.add(ticket)
        self._inner.exists(ticket, keys, self._page_time)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:  # noqa: ARG002
        """See `Store.get_into`."""
        self._in_flight.add(ticket)
        self._gets[ticket] = buffers
        self._inner.get_into(ticket, keys, buffers, self._page_time)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:  # noqa: ARG002
        """See `Store.put`."""
        self._in_flight.add(ticket)
        self._puts.add(ticket)
        self._inner.put(ticket, keys, buffers, self._page_time)

    def poll(self, tick: int) -> list[Progress]:  # noqa: ARG002
        """See `Store.poll`."""
        if not self._in_flight:
            self._inner.poll(self._page_time)  # time that nobody used is gone
            return []
        reports = self._inner.poll(self._page_time)
        for report in reports:
            self._count(report)
        return reports

    def cut(self, ticket: int, tick: int) -> None:  # noqa: ARG002
        """See `CuttableStore.cut`."""
        self._inner.cut(ticket, self._page_time)

    def close(self) -> None:
        """See `Store.close`."""
        self._inner.close()

    @property
    def _page_time(self) -> int:
        return self._clock.now_ns // self._page_ns

    def _count(self, report: Progress) -> None:
        if report.ticket in self._gets:
            self._arrive(report)
        if not report.done:
            return
        self._in_flight.discard(report.ticket)
        if self._gets.pop(report.ticket, None) is not None:
            del self._came[report.ticket]
        elif report.ticket in self._puts:
            self._puts.discard(report.ticket)
            self.written_pages += sum(verdict is Verdict.STORED for verdict in report.verdicts)
        else:
            self.lookups += 1

    def _arrive(self, report: Progress) -> None:
        """A page is read when it has come, though others of its fetch are still on their way."""
        came, buffers = self._came[report.ticket], self._gets[report.ticket]
        verdicts = report.verdicts[came:]
        hits = [page for page, verdict in zip(buffers[came:], verdicts, strict=False) if verdict is Verdict.HIT]
        self._came[report.ticket] += len(verdicts)
        self.read_pages += len(hits)
        self.reads.brought([int.from_bytes(page, sys.byteorder) for page in hits])

    def begin(self) -> None:
        """Count from now on: what passed while the store was tried is none of the trace's."""
        self.read_pages = self.written_pages = self.lookups = 0
        self.reads.forget()
