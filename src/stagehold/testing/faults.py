"""Puts faults between the engine and any store: delay, reorder, fail, short, corrupt, stall.

The adapter acts on what the engine sees. What lies in the store stays whole: damage below the checksum is
made by the simulated store, or by hand on files. The same calls in the same ticks over a deterministic
store give the same faults; a copy (deepcopy) goes on with the same dice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stagehold.cache.stores.dice import Dice
from stagehold.cache.stores.operations import Kind
from stagehold.cache.stores.protocol import Buffer, Progress, Store, Verdict, assign_tenant, cut_short

REORDER_TICKS = 8
"""How long a reordered completion waits for a later one at most."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities for one kind of operation, and the ticks that its completion is held back (least, most).

    From a drawn key on: `fail` answers FAILED; `short` answers nothing more (a get: that page is TORN, half
    of it overwritten); `corrupt` lies (a get: that page is CORRUPT, a bit flipped; a put: STORED, and
    nothing kept; an exists: HIT, whatever is there). `stall` never completes before `release`; `reorder`
    lets a later one pass.
    """

    delay: tuple[int, int] = (0, 0)
    reorder: float = 0.0
    fail: float = 0.0
    short: float = 0.0
    corrupt: float = 0.0
    stall: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What goes wrong with which kind of operation."""

    exists: Faults = field(default_factory=Faults)
    get: Faults = field(default_factory=Faults)
    put: Faults = field(default_factory=Faults)

    def of(self, kind: Kind) -> Faults:
        """Return the faults of `kind`."""
        return (self.exists, self.get, self.put)[kind]


@dataclass(frozen=True, slots=True)
class _Cut:
    """Keys that reach the store at all, then the verdict of the next key, and that of the rest."""

    real: int
    tail: Verdict = Verdict.UNREAD
    rest: Verdict = Verdict.UNREAD


@dataclass(slots=True)
class _Held:
    """An operation under way, with the fault that was drawn for it."""

    kind: Kind
    buffers: tuple[Buffer, ...]
    keys: int
    cut: _Cut
    due: int
    passes_by: int
    stalled: bool
    real: Progress | None = None
    told: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> _Held:
        """Buffers are the caller's and are shared."""
        return replace(self)


class FaultAdapter:
    """A `Store` that hands everything to `inner`, and goes wrong as the plan says.

    `counts` tells how many faults of each name were drawn.
    """

    def __init__(self, inner: Store, seed: int, plan: FaultPlan) -> None:
        self.name = f"{inner.name}+faults"
        self.inner = inner
        self.counts = dict.fromkeys(("reorder", "fail", "short", "corrupt", "stall"), 0)
        self._random = Dice(seed)
        self._plan = plan
        self._held: dict[int, _Held] = {}
        self._newest_done = -1

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """See `Store.exists`."""
        cut = self._draw(ticket, Kind.EXISTS, len(keys), (), tick)
        self.inner.exists(ticket, keys[: cut.real], tick)

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        cut = self._draw(ticket, Kind.GET, len(keys), tuple(buffers), tick)
        self.inner.get_into(ticket, keys[: cut.real], buffers[: cut.real], tick)

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.put`."""
        cut = self._draw(ticket, Kind.PUT, len(keys), tuple(buffers), tick)
        self.inner.put(ticket, keys[: cut.real], buffers[: cut.real], tick)

    def poll(self, tick: int) -> list[Progress]:
        """Report what the inner store moved, as far as the faults let it through."""
        for progress in self.inner.poll(tick):
            self._held[progress.ticket].real = progress
        reports = []
        for ticket in sorted(self._held):
            told = self._tell(ticket, tick)
            if told is not None:
                reports.append(told)
        for told in reports:
            if told.done:
                del self._held[told.ticket]
                self._newest_done = max(self._newest_done, told.ticket)
        return reports

    def release(self) -> None:
        """End every stall."""
        for held in self._held.values():
            held.stalled = False

    def heal(self) -> None:
        """Draw no more faults, and end every stall; faults already drawn still come."""
        self._plan = FaultPlan()
        self.release()

    def in_flight(self) -> list[int]:
        """Return the tickets not yet reported done, ascending."""
        return sorted(self._held)

    def cut(self, ticket: int, tick: int) -> None:
        """See `CuttableStore.cut`, as far as the inner store can."""
        cut_short(self.inner, ticket, tick)

    def assign(self, ticket: int, namespace: bytes) -> None:
        """See `TenantStore.assign`, as far as the inner store can."""
        assign_tenant(self.inner, ticket, namespace)

    def close(self) -> None:
        """See `Store.close`."""
        self._held.clear()
        self.inner.close()

    def _draw(self, ticket: int, kind: Kind, keys: int, buffers: tuple[Buffer, ...], tick: int) -> _Cut:
        """Draw what goes wrong, always with as many draws: one rate leaves the others' dice alone."""
        faults = self._plan.of(kind)
        assert ticket not in self._held, f"ticket {ticket} is in flight already"
        where, delay = self._random.random(), self._random.random()
        struck = {
            name: self._random.random() < getattr(faults, name)
            for name in ("reorder", "fail", "short", "corrupt", "stall")
        }
        for name, hit in struck.items():
            self.counts[name] += hit
        cut = _cut(kind, keys, int(where * keys), struck)
        least, most = faults.delay
        due = tick + least + int(delay * (most - least + 1))
        passes_by = due + REORDER_TICKS if struck["reorder"] else due
        self._held[ticket] = _Held(kind, buffers, keys, cut, due, passes_by, struck["stall"])
        return cut

    def _tell(self, ticket: int, tick: int) -> Progress | None:
        held = self._held[ticket]
        if held.real is None or held.stalled or tick < held.due:
            return None
        if tick < held.passes_by and self._newest_done < ticket:
            return None
        if held.real.done:
            return self._end(held, held.real)
        # A page that is about to be damaged is not announced as good first.
        good = min(held.real.good, held.cut.real - 1)
        if good <= held.told:
            return None
        held.told = good
        return Progress(ticket, done=False, good=good, verdicts=held.real.verdicts[:good])

    def _end(self, held: _Held, real: Progress) -> Progress:
        verdicts, cut = list(real.verdicts), held.cut
        damaged = cut.tail in (Verdict.TORN, Verdict.CORRUPT)
        if damaged and real.good == cut.real:
            _scramble(held.buffers[cut.real - 1], cut.tail)
            verdicts[-1] = cut.tail
        broken = Verdict.UNREAD in verdicts or (held.kind is Kind.GET and real.good < cut.real)
        while len(verdicts) < held.keys:
            tail = cut.tail if len(verdicts) == cut.real and not damaged else cut.rest
            verdicts.append(Verdict.UNREAD if broken else tail)
        good = next((i for i, v in enumerate(verdicts) if v > Verdict.STORED), len(verdicts))
        return Progress(real.ticket, done=True, good=good, verdicts=tuple(verdicts))


def _cut(kind: Kind, keys: int, where: int, struck: dict[str, bool]) -> _Cut:
    """Turn the faults drawn into one cut at key `where`; the first that struck, in this order, wins."""
    if keys == 0 or not (struck["fail"] or struck["short"] or struck["corrupt"]):
        return _Cut(keys)
    if struck["fail"]:
        return _Cut(where, Verdict.FAILED, Verdict.UNREAD if kind is Kind.GET else Verdict.FAILED)
    if kind is Kind.GET:
        return _Cut(where + 1, Verdict.TORN if struck["short"] else Verdict.CORRUPT)
    if struck["short"]:
        return _Cut(where)
    lie = Verdict.STORED if kind is Kind.PUT else Verdict.HIT
    return _Cut(where, lie, lie)


def _scramble(buffer: Buffer, verdict: Verdict) -> None:
    """Leave in the buffer what such a read would leave: half a page of nothing, or a flipped bit."""
    if verdict is Verdict.TORN:
        half = len(buffer) // 2
        buffer[half:] = bytes(len(buffer) - half)
    elif len(buffer):
        buffer[0] ^= 1
