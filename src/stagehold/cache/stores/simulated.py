"""A store without threads and without a disk, in discrete ticks, for tests, the explorer and the lab.

It holds real page objects in memory and verifies them like any other store. Delays, loss, failure, damage and
stalls come from one seeded generator: the same calls in the same ticks give the same results. A copy
(deepcopy) goes on from the same state; buffers of operations in flight are shared with the original until
`rebind`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagehold.cache.stores.dice import Dice
from stagehold.cache.stores.medium import Link, Medium, TenantMedium
from stagehold.cache.stores.operations import Kind, Operation, operation
from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout, encode_header, unpack_into
from stagehold.cache.stores.protocol import Buffer, Progress, Verdict

__all__ = ["Delays", "Link", "Medium", "Rates", "SimulatedStore", "TenantMedium"]

NEVER = 1 << 62
"""The due tick of a stalled operation."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Ticks from submission to the first possible answer, least and most, both included."""

    exists: tuple[int, int] = (1, 2)
    get: tuple[int, int] = (1, 4)
    put: tuple[int, int] = (1, 4)

    def of(self, kind: Kind) -> tuple[int, int]:
        """Return the range for `kind`."""
        return (self.exists, self.get, self.put)[kind]


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities of misbehaviour: `fail` and `stall` for each operation, the others for each page.

    `lose` acknowledges a put and keeps nothing; `corrupt` flips a bit and `short` cuts the page, on reading.
    """

    lose: float = 0.0
    fail: float = 0.0
    corrupt: float = 0.0
    short: float = 0.0
    stall: float = 0.0


class SimulatedStore:
    """A `Store` in ticks over a `Medium`; see the module for what is promised.

    It has no workers, so a snapshot of an engine may copy it (`copyable`).

    A link limits the pages of a tick, which all reads and writes under way share, one page each in turn, so
    that a long get is spread over ticks and reports its good pages as it goes; lookups pass beside them.
    `pages_per_tick` is short for a link of its own; without either there is no limit.
    """

    persistent = False
    """A store opened anew by its URL is empty; only a shared `Medium` outlives a handle."""

    copyable = True

    def __init__(
        self,
        seed: int = 0,
        *,
        delays: Delays | None = None,
        rates: Rates | None = None,
        pages_per_tick: int | None = None,
        medium: Medium | None = None,
        link: Link | None = None,
        layout: Layout = WHOLE,
        name: str = "sim",
    ) -> None:
        if pages_per_tick is not None and link is not None:
            raise ValueError("both pages_per_tick and a link: expected one of them")
        self.name = name
        self.link = Link(pages_per_tick) if pages_per_tick is not None else link
        self.medium = medium if medium is not None else Medium()
        self._random = Dice(seed)
        self._delays = delays or Delays()
        self._rates = rates or Rates()
        self._place = self.link.join() if self.link is not None else 0
        self._layout = layout
        self._part = self.medium  # of the operation that is being stepped
        self._assigned: tuple[int, bytes] | None = None
        self._whose: dict[int, bytes] = {}  # tenants, by ticket
        self._operations: dict[int, Operation] = {}
        self._due: dict[int, int] = {}
        self._failing: dict[int, int] = {}
        self._fail_next = 0
        self._stalled = False
        self._closed = False

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        self._submit(operation(ticket, Kind.EXISTS, keys), tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self._submit(operation(ticket, Kind.GET, keys, buffers), tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`."""
        self._submit(operation(ticket, Kind.PUT, keys, buffers), tick)

    def poll(self, tick: int) -> list[Progress]:
        """Let the pages of this tick move, then report what did, in ticket order."""
        if self._stalled:
            return []
        self._move(tick)
        reports = [found for ticket in sorted(self._operations) if (found := self._report(ticket, tick))]
        for progress in reports:
            if progress.done:
                self._forget(progress.ticket)
        return reports

    def cut(self, ticket: int, tick: int) -> None:  # noqa: ARG002
        """See `CuttableStore.cut`; no page moves any more, and the end is told when a first answer would have been."""
        found = self._operations.get(ticket)
        if found is not None:
            found.cut()

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the medium keeps tenants apart."""
        self._assigned = (ticket, namespace)

    def close(self) -> None:
        """See `Store.close`; the medium keeps its pages."""
        self._closed = True
        for ticket in list(self._operations):
            self._forget(ticket)

    # What tests and the lab turn.

    def keys(self) -> list[bytes]:
        """Return the names of all stored pages, part by part, least recently used first."""
        return [name for part in self.medium.parts() for name in part.names()]

    def contains(self, key: bytes) -> bool:
        """Say whether a page is stored; renews nothing."""
        return any(key in part for part in self.medium.parts())

    def drop(self, key: bytes) -> bool:
        """Lose a page; False where it was not stored."""
        return any(part.remove(key) for part in self.medium.parts())

    def damage(self, key: bytes, length: int = 0) -> None:  # noqa: ARG002
        """Flip one bit of the stored page for good. Raises KeyError where it is not stored."""
        for part in self.medium.parts():
            raw = part.read(key)
            if raw is not None:
                part.write(key, self._flip(raw))
                return
        raise KeyError(key)

    def fail_next(self, count: int) -> None:
        """Make the next `count` operations to be submitted fail at their first key."""
        self._fail_next = count

    def stall(self) -> None:
        """Complete nothing until `release`."""
        self._stalled = True

    def release(self) -> None:
        """End every stall, those of single operations too."""
        self._stalled = False
        self._due = {ticket: 0 if due == NEVER else due for ticket, due in self._due.items()}

    def limit(self, pages_per_tick: int) -> None:
        """Go on with a link of its own that lets so many pages pass in a tick."""
        self.link = Link(pages_per_tick)
        self._place = self.link.join()

    def heal(self) -> None:
        """Behave from now on: no misbehaviour for new work, no stall left. Past losses stay lost."""
        self._rates = Rates()
        self._fail_next = 0
        self._failing.clear()
        self.release()

    def rebind(self, buffers: Mapping[int, Sequence[Buffer]]) -> None:
        """Point operations in flight (by ticket) at other buffers, after a copy of the caller's memory."""
        for ticket, views in buffers.items():
            found = self._operations[ticket]
            found.buffers = operation(ticket, found.kind, found.keys, views).buffers

    def in_flight(self) -> list[int]:
        """Return the tickets not yet reported done, ascending."""
        return sorted(self._operations)

    # How it moves.

    def _submit(self, new: Operation, tick: int) -> None:
        if self._closed:
            raise RuntimeError(f"store {self.name} is closed")
        assert new.ticket not in self._operations, f"ticket {new.ticket} is in flight already"
        assigned, self._assigned = self._assigned, None
        if assigned is not None and assigned[0] == new.ticket:
            self._whose[new.ticket] = assigned[1]
        least, most = self._delays.of(new.kind)
        # Always the same number of draws, so that one rate does not shift the dice of the others.
        delay, fails, where, stalls = (self._random.random() for _ in range(4))
        self._operations[new.ticket] = new
        self._due[new.ticket] = tick + least + int(delay * (most - least + 1))
        if stalls < self._rates.stall:
            self._due[new.ticket] = NEVER
        if self._fail_next:
            self._fail_next -= 1
            self._failing[new.ticket] = 0
        elif fails < self._rates.fail:
            self._failing[new.ticket] = int(where * len(new.keys))

    def _move(self, tick: int) -> None:
        """Step the operations that are due, one page each in turn, while pages of the tick are left."""
        due = (self._operations[t] for t in sorted(self._operations) if self._due[t] <= tick)
        turn = [found for found in due if not found.done]
        left = self._granted(turn, tick)
        while turn:
            for found in turn:
                lookup = found.kind is Kind.EXISTS
                if lookup or left > 0:
                    self._step(found)
                    left -= not lookup
            turn = [found for found in turn if not found.done and (left > 0 or found.kind is Kind.EXISTS)]

    def _granted(self, turn: Sequence[Operation], tick: int) -> int:
        if self.link is None:
            return NEVER
        return self.link.grant(self._place, tick, busy=any(found.kind is not Kind.EXISTS for found in turn))

    def _report(self, ticket: int, tick: int) -> Progress | None:
        return self._operations[ticket].report() if self._due[ticket] <= tick else None

    def _forget(self, ticket: int) -> None:
        del self._operations[ticket], self._due[ticket]
        self._failing.pop(ticket, None)
        self._whose.pop(ticket, None)

    def _step(self, found: Operation) -> None:
        index = len(found.verdicts)
        self._part = self.medium.part(self._whose.get(found.ticket), take_place=found.kind is Kind.PUT)
        if self._failing.get(found.ticket) == index:
            found.answer(Verdict.FAILED)
            found.finish(Verdict.FAILED)
        elif found.kind is Kind.EXISTS:
            found.answer(Verdict.HIT if found.keys[index] in self._part else Verdict.MISS)
        elif found.kind is Kind.PUT:
            found.answer(self._write(found.keys[index], found.buffers[index]))
        else:
            found.answer(self._read(found.keys[index], found.buffers[index]))

    def _write(self, name: bytes, body: Buffer) -> Verdict:
        if self._random.random() < self._rates.lose:
            self._part.remove(name)
            return Verdict.STORED
        if self._part.read(name) is not None:
            return Verdict.STORED
        raw = encode_header(name, body, self._layout) + bytes(body)
        return Verdict.STORED if self._part.write(name, raw) else Verdict.REFUSED

    def _read(self, name: bytes, out: Buffer) -> Verdict:
        corrupt, short = self._random.random(), self._random.random()
        raw = self._part.read(name)
        if raw is None:
            return Verdict.MISS
        if corrupt < self._rates.corrupt:
            raw = self._flip(raw)
        if short < self._rates.short:
            raw = raw[: len(raw) // 2]
        verdict = unpack_into(raw, out, name, self._layout)
        if verdict is not Verdict.HIT:
            self._part.remove(name)  # a page that was found bad is not found again
        return verdict

    def _flip(self, raw: bytes) -> bytes:
        """Flip a bit of the checksum or the body: what a checksum is there to find."""
        flipped = bytearray(raw)
        bit = self._random.randrange(8 * (HEADER_BYTES - 16), 8 * len(raw))
        flipped[bit >> 3] ^= 1 << (bit & 7)
        return bytes(flipped)
