"""What an engine counts about itself, from its own records: one source for metrics, tables and tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stagehold.lifecycle.core import Core
from stagehold.lifecycle.happened import PUT_OFF, Admitted, Amount
from stagehold.lifecycle.occupancy import Occupancy
from stagehold.lifecycle.stocks import PoolUse
from stagehold.lifecycle.writes import HEAD_SHIFT, PART_SHIFT
from stagehold.machines import MACHINES, RECORD, Birth, Block, Journal, Sink, rows_of
from stagehold.machines.counters import counters, decline_codes
from stagehold.machines.labels import row_name
from stagehold.machines.records import REFUSED_ROW
from stagehold.specs.declare import MachineSpec
from stagehold.specs.outcomes import Decline
from stagehold.specs.write import WRITE


@dataclass(frozen=True, slots=True)
class Count:
    """One counter: how often, the tokens of its records, and of writes their bytes (0 where none are attached)."""

    taken: int
    tokens: int
    bytes: int = 0


NEVER = Count(0, 0)


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures since the start of the engine, up to now; tokens unless the name says otherwise.

    `counters` has every row that was taken, by `machine_event_outcome`; `state_entries` counts by `machine.state`, and
    `declines` launches by reason.
    Every offered page is refused, stored or dropped, was evicted unwritten, is one of the backlog, or went to host
    memory with no store in use (`host_only_pages`); pages of other components count like those of FULL. `backlog_age`
    is how many ticks the oldest write has been pending. What waits for a write-back policy was not offered yet:
    `held_back_pages`, of which some are evicted first. `kept_pages` are in the host tier or the page cache;
    `reserved_pages` of the device are promised and not taken: they evict nothing yet.

    `states` has the instances in each `machine.state` now, `state_ticks` the ticks that all instances together have
    spent there. `put_off` are tokens of commits and of parked spans, counted each time, by what they waited for.
    `thrown` is what was read and of no use, by reason; what host memory keeps of that may be of use to others later.
    `tenants` are the namespaces that share what there is (0 without `tenant_share`); `refused_for_tenants` counts, by
    resource, how many times one was refused what is kept for others.
    `gate_closings` counts how often waiting for the store was found to cost more than computing.
    `wrong_beliefs` are pages believed stored that did not come back. `token_gap` is 0 unless the token book is broken.
    """

    ticks: int
    queried: int
    spliced: int
    open_claims: int
    losses: dict[str, int]
    fetched: int
    local: int
    counters: dict[str, Count]
    declines: dict[str, int]
    state_entries: dict[str, int]
    rows_taken: dict[str, int]
    refused_events: int
    violations: int
    owned: dict[str, int]
    live_machines: int
    stored_pages: int
    host_only_pages: int
    offered_pages: int
    refused_pages: int
    dropped_pages: int
    evicted_unwritten_pages: int
    backlog_pages: int
    backlog_writes: int
    backlog_age: int
    held_back_pages: int
    evicted_held_back_pages: int
    kept_pages: int
    reserved_pages: int
    max_reissues: int
    states: dict[str, int]
    state_ticks: dict[str, int]
    pools: dict[str, PoolUse]
    pinned_pages: int
    put_off: dict[str, int]
    admitted: Admitted
    read: Amount
    thrown: dict[str, Amount]
    to_device: Amount
    from_device: Amount
    beliefs: int
    wrong_beliefs: int
    breaker_rest: int
    gate_closings: int
    tenants: int
    refused_for_tenants: dict[str, int]
    token_gap: int

    def count(self, counter: str) -> Count:
        """One counter by name; of a name that nothing has, or that nothing counted, nothing."""
        return self.counters.get(counter, NEVER)


DROPS = (
    "write_start_gone",
    "write_timeout",
    "write_drop",
    "write_copied_unwanted",
    "write_put_ended_spent",
)
"""Where an admitted write ends without having been stored."""


STORED = ("write_put_ended_stored", "write_put_ended_failed")
"""Whose records have the pages that a put has stored: all of them, or the first ones before it failed."""

WRITES = MACHINES.index(WRITE)


@dataclass(slots=True)
class Counts:
    """Records and births by what they say, as numbers: the form in which they are added up."""

    taken: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    parts: Counter[tuple[int, int]] = field(default_factory=Counter)  # tokens of writes by code and component number
    heads: Counter[int] = field(default_factory=Counter)  # tokens of writes that were stored before they failed
    declines: Counter[int] = field(default_factory=Counter)
    born: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, records: NDArray[np.void], births: tuple[Birth, ...]) -> None:
        """Add what one block says."""
        for _, code, _, detail in records.tolist():
            self.taken[code] += 1
            if code in decline_codes():
                self.declines[detail] += 1
            elif detail and code & REFUSED_ROW != REFUSED_ROW:
                self.tokens[code] += detail & 0xFFFFFFFF
                if code >> 8 == WRITES:
                    self.parts[(code, detail >> PART_SHIFT)] += detail & 0xFFFFFFFF
                    self.heads[code] += (detail >> HEAD_SHIFT) & 0xFFFFFF
        for birth in births:
            self.born[(birth.machine, birth.state)] += 1

    def plus(self, records: NDArray[np.void], births: tuple[Birth, ...]) -> Counts:
        """These, and what one more block says."""
        more = Counts(*(Counter(getattr(self, name)) for name in self.__slots__))
        more.add(records, births)
        return more


class Tally:
    """Sits between the journal and the embedder's sink, and counts records and births block by block."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._counts = Counts()
        self._occupancy = Occupancy()
        self.violations = 0
        self.max_issues = 0  # launches of the attempt that had most of them, among those that ended
        self.last: Block | None = None

    def block(self, block: Block) -> None:
        """One tick's block."""
        self.last = block
        if block.records or block.births:
            table = block.table()
            self._counts.add(table, block.births)
            self._occupancy.add(block.tick, table.tolist(), block.births)
        if self._sink is not None:
            self._sink(block)

    def stats(self, core: Core) -> Stats:
        """The figures now: of the closed blocks, and of the one that is open."""
        ledger, journal, size = core.ledger, core.journal, core.config.page_size
        records = _open_records(journal)
        births, tick = tuple(journal.births), core.clock.tick
        counts = self._counts.plus(records, births)
        occupancy = self._occupancy.plus(tick, records.tolist(), births)
        counted = _counted(counts, _page_bytes(core), size)

        def pages(*names: str) -> int:
            return sum(counted[name].tokens for name in names if name in counted) // size

        offered = [name for name in counted if name.startswith("write_offer_")]
        return Stats(
            ticks=tick,
            queried=ledger.queried,
            spliced=ledger.spliced,
            open_claims=ledger.open,
            losses={loss.name.lower(): tokens for loss, tokens in sorted(ledger.losses.items()) if tokens},
            fetched=core.fetched_tokens,
            local=core.local_tokens,
            counters=counted,
            declines={Decline(reason).name.lower(): times for reason, times in sorted(counts.declines.items())},
            state_entries=_state_entries(counts, core.journal.machines),
            rows_taken=_rows_taken(counts),
            refused_events=sum(times for code, times in counts.taken.items() if code & REFUSED_ROW == REFUSED_ROW),
            violations=self.violations,
            owned={resource: units for resource, units in sorted(ledger.totals.items()) if units},
            live_machines=len(core.requests) + len(core.holds) + len(core.writes),
            stored_pages=pages(*STORED) + sum(counts.heads.values()) // size,
            host_only_pages=pages("write_copied_kept"),
            offered_pages=pages(*offered),
            refused_pages=pages(*(name for name in offered if name != "write_offer_queue")),
            dropped_pages=pages(*DROPS),
            evicted_unwritten_pages=pages("write_start_copy"),  # tails that a copy found evicted when it began
            backlog_pages=ledger.totals["backlog"],
            backlog_writes=len(core.backlog),
            backlog_age=max((tick - w.data.since for w in list(core.writes.values())[:1]), default=0),
            held_back_pages=len(core.held_back.pages),
            evicted_held_back_pages=core.held_back.lost,
            kept_pages=sum(len(stock.host) for stock in core.stocks),
            reserved_pages=sum(stock.reserved for stock in core.stocks),
            max_reissues=max(0, self._max_issues(core) - 1),
            states=occupancy.standing(),
            state_ticks=occupancy.ticks(tick),
            pools={stock.name: stock.use() for stock in core.stocks},
            pinned_pages=core.tree.pinned,
            put_off=_put_off(core, counted),
            admitted=core.happened.admitted,
            read=core.happened.read,
            thrown={reason.value: amount for reason, amount in core.happened.thrown.items()},
            to_device=core.happened.to_device,
            from_device=core.happened.from_device,
            beliefs=len(core.beliefs),
            wrong_beliefs=core.beliefs.wrong,
            breaker_rest=core.breaker.data.rest,
            gate_closings=core.gate.closings,
            tenants=len(core.quotas.tenants),
            refused_for_tenants=dict(core.quotas.refused),
            token_gap=ledger.token_gap,
        )

    def _max_issues(self, core: Core) -> int:
        alive = list(core.requests.values())  # at once, since the engine's thread may go on meanwhile
        return max([self.max_issues, *(m.issues for m in alive)])


def _open_records(journal: Journal) -> NDArray[np.void]:
    """The records of the block that is open."""
    # Another thread may ask, in the middle of a step: a record of which only the first half stands there waits.
    raw = b"".join(journal.records)
    return np.frombuffer(raw, RECORD, len(raw) // RECORD.itemsize)


def _put_off(core: Core, counted: dict[str, Count]) -> dict[str, int]:
    """Every resource named; commits that found no room waited for the device."""
    commits = (counted.get(name, NEVER).tokens for name in ("request_commit_no_room", "request_commit_deferred"))
    waits = {what: core.happened.put_off[what] for what in PUT_OFF.values()}
    return {"device": sum(commits), **waits}


def _page_bytes(core: Core) -> list[int]:
    """Bytes of a page of each component, by its number; 0 where no bytes are attached."""
    config = core.config
    return [config.page_bytes, *(one.parts * one.page_part_bytes for one in config.components)]


def _counted(counts: Counts, page_bytes: list[int], page_size: int) -> dict[str, Count]:
    """By counter, which several rows may share."""
    found: dict[str, Count] = {}
    names = counters()
    in_bytes: Counter[int] = Counter()
    for (code, part), tokens in counts.parts.items():
        in_bytes[code] += tokens // page_size * page_bytes[part]
    for code, times in sorted(counts.taken.items()):
        if code in names:
            was = found.get(names[code], NEVER)
            found[names[code]] = Count(was.taken + times, was.tokens + counts.tokens[code], was.bytes + in_bytes[code])
    return found


def _state_entries(counts: Counts, machines: tuple[MachineSpec, ...]) -> dict[str, int]:
    """How often each state was entered (rows that stay do not enter), as `machine.state`."""
    entries: Counter[str] = Counter()
    for (machine, state), times in sorted(counts.born.items()):
        spec = machines[machine]
        entries[f"{spec.name}.{type(spec.initial)(state).name.lower()}"] += times
    for code, times in sorted(counts.taken.items()):
        if code & REFUSED_ROW != REFUSED_ROW:
            spec = machines[code >> 8]
            row = rows_of(spec)[code & 0xFF]
            if row.source is not row.target:
                entries[f"{spec.name}.{row.target.name.lower()}"] += times
    return dict(entries)


def _rows_taken(counts: Counts) -> dict[str, int]:
    """How often each row was taken, as `machine.source.event.OUTCOME`."""
    taken: dict[str, int] = {}
    for code, times in sorted(counts.taken.items()):
        if code & REFUSED_ROW != REFUSED_ROW:
            spec = MACHINES[code >> 8]
            taken[row_name(spec, rows_of(spec)[code & 0xFF])] = times
    return taken
