"""The checks of `audit.verify`: the chain block by block, the rows many records at a time.

Owns what a sound log is. `Chain` and `Checker` read no file and raise nothing: each check answers with the first
fault, or None. `legal` is for readers who go by the rows, and need no chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stagehold.machines import audit_words
from stagehold.machines.audit_lines import REFUSAL, refusals, rendered
from stagehold.machines.audit_read import BadLogError, Damage, Fault, Placed, batches, records_of
from stagehold.machines.audit_tables import STATES, Flows, Ints, book, flows, tables
from stagehold.machines.declared import MACHINES, declaration_hash
from stagehold.machines.records import DIGEST_BYTES, RECORD, REFUSED_FLAG, REFUSED_ROW, Totals
from stagehold.specs.declare import MachineSpec
from stagehold.specs.outcomes import Loss

Bits = NDArray[np.bool_]


@dataclass(slots=True)
class Chain:
    """Where the chain of blocks stands: the digest of the last one and the index of the next."""

    path: Path
    machines: tuple[MachineSpec, ...]
    digest: bytes = bytes(DIGEST_BYTES)
    index: int = 0
    line: int = 0

    def whole(self, placed: Sequence[Placed]) -> tuple[Sequence[Placed], Fault | None]:
        """The blocks up to the first that breaks the chain, and how it does.

        One whose refusals are told wrongly is whole itself: its records are judged first.
        """
        for at, one in enumerate(placed):
            fault = self._check(one)
            if fault is not None:
                return placed[:at], fault
            fault = self._refusals(one) if one.refusals or one.block.records else None
            if fault is not None:
                return placed[: at + 1], fault
        return placed, None

    def _refusals(self, placed: Placed) -> Fault | None:
        """Whether the lines after a block tell its refusals, each exactly once and in order."""
        expected = [rendered(REFUSAL, facts) + b"\n" for facts in refusals(placed.block, self.machines)]
        for at, (wanted, found) in enumerate(zip_longest(expected, placed.refusals), start=1):
            if wanted != found:
                texts = [b"none" if text is None else text.rstrip() for text in (wanted, found)]
                told = [text.decode("utf-8", "replace") for text in texts]
                return Fault(Damage.ALTERED_NOTE, self.path, placed.line + at, placed.block.index, *told)
        return None

    def _check(self, placed: Placed) -> Fault | None:
        """Whether the block is what was written, and the next one; then it is the last."""
        block = placed.block
        if placed.computed != block.digest:
            return self._fault(placed, Damage.ALTERED, f"digest {block.digest.hex()}", placed.computed.hex())
        if not placed.exact:
            return self._fault(placed, Damage.ALTERED, "the line as the log writes it", "the same content, otherwise")
        if block.declaration != (ours := declaration_hash(self.machines)):
            return self._fault(placed, Damage.FOREIGN, ours.hex(), block.declaration.hex())
        if block.index != self.index:
            damage = Damage.MISSING_BLOCK if block.index > self.index else Damage.REPEATED_BLOCK
            return self._fault(placed, damage, f"block {self.index}", f"block {block.index}")
        if block.previous != self.digest:
            wanted = f"one that follows {self.digest.hex()}"
            return self._fault(placed, Damage.BROKEN_CHAIN, wanted, f"one that follows {block.previous.hex()}")
        self.digest, self.index, self.line = block.digest, self.index + 1, placed.line
        return None

    def _fault(self, placed: Placed, damage: Damage, expected: str, found: str) -> Fault:
        return Fault(damage, self.path, placed.line, placed.block.index, expected, found)


Told = tuple[Damage, str, str]
"""What is wrong with a record: the damage, what was expected, what was found."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records of several blocks, looked up: arrays of shape (n,), and the blocks that they come from."""

    placed: Sequence[Placed]
    records: NDArray[np.void]
    block: Ints
    """Position in `placed` of each record's block."""
    who: Ints
    """Position of each record's instance among all born so far."""
    refused: Bits
    source: Ints
    target: Ints
    flown: Flows


def _start(value: int) -> Ints:
    """A column of the instances: it opens with one that never was, so that no look-up falls off its start."""
    return np.array([value], np.int64)


def _grouped(who: Ints) -> tuple[Ints, Bits]:
    """The records' order by instance (then as in the log), and which of them are its first."""
    order = np.argsort(who, kind="stable")
    starts = np.ones(len(who), np.bool_)
    starts[1:] = who[order][1:] != who[order][:-1]
    return order, starts


@dataclass(slots=True)
class Checker:
    """Every instance born so far, where it stands, and the tokens in the books."""

    path: Path
    machines: tuple[MachineSpec, ...]
    totals: Totals = field(default_factory=Totals)
    claims: int = 0
    blocks: int = 0
    records: int = 0
    numbers: Ints = field(default_factory=lambda: _start(-1))
    machine: Ints = field(default_factory=lambda: _start(-1))
    state: Ints = field(default_factory=lambda: _start(-1))
    since: Ints = field(default_factory=lambda: _start(0))
    """Line of the log on which each instance was born."""

    @property
    def instances(self) -> int:
        """How many were born."""
        return len(self.numbers) - 1

    def check(self, placed: Sequence[Placed]) -> Fault | None:
        """Check the next blocks of the log, and take them over if nothing is wrong with them."""
        fault = self._enter(placed)
        if fault is not None:
            return fault
        batch = self._looked_up(placed)
        first = len(batch.records)
        for wrong, tell in self._tests(batch):
            if wrong[:first].any():
                first = int(np.argmax(wrong))
                fault = self._fault(batch, first, tell(first))
        return fault or self._take_over(batch)

    def _enter(self, placed: Sequence[Placed]) -> Fault | None:
        """Births: a known machine, one of its birth states, and a number above all before it."""
        made, top = tables(self.machines), int(self.numbers[-1])
        fresh = []
        for one in placed:
            for birth in one.block.births:
                known = birth.machine < len(self.machines) and made.births[birth.machine, birth.state]
                if not known or birth.number <= top:
                    wanted = f"a birth state of a known machine, and a number above {top}"
                    found = audit_words.born(birth, self.machines)
                    return Fault(Damage.BAD_BIRTH, self.path, one.line, one.block.index, wanted, found)
                top = birth.number
                fresh.append((top, birth.machine, birth.state, one.line))
        columns = np.array(fresh, np.int64).reshape(-1, 4).T
        self.numbers = np.concatenate([self.numbers, columns[0]])
        self.machine = np.concatenate([self.machine, columns[1]])
        self.state = np.concatenate([self.state, columns[2]])
        self.since = np.concatenate([self.since, columns[3]])
        return None

    def _looked_up(self, placed: Sequence[Placed]) -> _Batch:
        made = tables(self.machines)
        counts = [len(one.block.records) // RECORD.itemsize for one in placed]
        records = records_of(placed)
        refused = (records["row"] & REFUSED_ROW) == REFUSED_ROW
        stood = np.minimum(records["detail"] >> np.uint64(8), np.uint64(STATES)).astype(np.int64)
        return _Batch(
            placed=placed,
            records=records,
            block=np.repeat(np.arange(len(placed)), counts),
            who=np.searchsorted(self.numbers, records["instance"].astype(np.int64), side="right") - 1,
            refused=refused,
            source=np.where(refused, stood, made.source[records["row"]]),
            target=np.where(refused, stood, made.target[records["row"]]),
            flown=flows(made, records),
        )

    def _tests(self, batch: _Batch) -> Iterator[tuple[Bits, Callable[[int], Told]]]:
        """For each kind of damage which records show it, and how to tell it of one of them.

        A record that an earlier test refuses may look anyhow to the later ones; only the first one is told.
        """
        yield (
            self._unborn(batch),
            lambda at: (
                Damage.UNBORN,
                "the birth of its instance before it",
                f"a record of instance {batch.records['instance'][at]}",
            ),
        )
        yield (
            self._illegal(batch),
            lambda at: (
                Damage.ILLEGAL_ROW,
                f"a row of {self._name(batch, at)}",
                self._said(batch, at),
            ),
        )
        yield (
            self._false_refusals(batch),
            lambda at: (
                Damage.FALSE_REFUSAL,
                f"an event that {self._name(batch, at)} refuses",
                self._said(batch, at),
            ),
        )
        yield (
            batch.flown.bad,
            lambda at: (
                Damage.BAD_DETAIL,
                f"a loss, 0 to {len(Loss) - 1}, in the high half of the detail",
                str(batch.records["detail"][at] >> np.uint64(32)),
            ),
        )
        before, wrong = self._discontinuous(batch)
        yield (
            wrong,
            lambda at: (
                Damage.DISCONTINUOUS,
                f"a row from state {self._state(batch, at, before[at])}",
                self._said(batch, at),
            ),
        )

    def _unborn(self, batch: _Batch) -> Bits:
        lines = np.array([one.line for one in batch.placed], np.int64)
        unknown: Bits = self.numbers[batch.who] != batch.records["instance"]
        return unknown | (self.since[batch.who] > lines[batch.block])

    def _illegal(self, batch: _Batch) -> Bits:
        strange: Bits = (batch.records["row"] >> 8) != self.machine[batch.who]
        flag: Bits = batch.records["flags"] != np.where(batch.refused, REFUSED_FLAG, 0)
        return strange | flag | (batch.source < 0)

    def _false_refusals(self, batch: _Batch) -> Bits:
        made, machine = tables(self.machines), self.machine[batch.who]
        event = (batch.records["detail"] & np.uint64(0xFF)).astype(np.int64)
        unknown: Bits = (batch.source >= STATES) | (event >= made.events[machine])
        return batch.refused & (unknown | made.accepts[machine, np.minimum(batch.source, STATES - 1), event])

    def _discontinuous(self, batch: _Batch) -> tuple[Ints, Bits]:
        """The state in which each record finds its instance, and where the row cannot be taken from there."""
        order, starts = _grouped(batch.who)
        before = np.empty(len(order), np.int64)
        before[order] = np.where(starts, self.state[batch.who[order]], np.roll(batch.target[order], 1))
        stood, found = (np.minimum(states, STATES - 1) for states in (before, batch.source))  # no state: refused before
        return before, ~tables(self.machines).follows[self.machine[batch.who], stood, found]

    def _take_over(self, batch: _Batch) -> Fault | None:
        """Enter states and tokens, unless the tokens do not balance at the end of some block."""
        made, flown = tables(self.machines), batch.flown
        opened = self.totals.open + np.cumsum(flown.queried - flown.spliced - flown.lost)
        claims = self.claims + np.cumsum(made.claims[batch.records["row"]])
        ends = np.append(batch.block[1:] != batch.block[:-1], True) if len(batch.records) else batch.refused
        wrong = ends & ((opened < 0) | ((claims == 0) & (opened != 0)))
        if wrong.any():
            at = int(np.argmax(wrong))
            wanted = "none, as no claim is open" if claims[at] == 0 else "no fewer than none"
            return self._fault(batch, at, (Damage.UNBALANCED, f"{wanted}: open tokens", str(opened[at])))
        order, starts = _grouped(batch.who)
        lasts = order[np.append(starts[1:], True)] if len(order) else order
        self.state[batch.who[lasts]] = batch.target[lasts]
        book(self.totals, flown)
        self.totals.refused += int(batch.refused.sum())
        self.claims = int(claims[-1]) if len(claims) else self.claims
        self.blocks, self.records = self.blocks + len(batch.placed), self.records + len(batch.records)
        return None

    def _fault(self, batch: _Batch, at: int, told: Told) -> Fault:
        placed = batch.placed[batch.block[at]]
        nth = at - int(np.searchsorted(batch.block, batch.block[at]))
        damage, expected, found = told
        return Fault(damage, self.path, placed.line, placed.block.index, expected, f"{found} (record {nth})")

    def _said(self, batch: _Batch, at: int) -> str:
        record = batch.records[at].item()
        return f"instance {record[0]}: {audit_words.describe(record, self.machines)}"

    def _name(self, batch: _Batch, at: int) -> str:
        return self.machines[int(self.machine[batch.who[at]])].name

    def _state(self, batch: _Batch, at: int, state: int) -> str:
        return type(self.machines[int(self.machine[batch.who[at]])].initial)(state).name.lower()


def legal(path: Path, machines: tuple[MachineSpec, ...] = MACHINES) -> Iterator[list[Placed]]:
    """The blocks of the log at `path` in batches, each once it is known that an engine can have written it.

    `BadLogError` at the first block of other declarations, and at the first birth, record or detail that cannot be.
    """
    checker, ours = Checker(path, machines), declaration_hash(machines)
    for batch in batches(path):
        foreign = next((at for at, one in enumerate(batch) if one.block.declaration != ours), len(batch))
        fault = checker.check(batch[:foreign])
        if fault is None and foreign < len(batch):
            place = batch[foreign]
            told = ours.hex(), place.block.declaration.hex()
            fault = Fault(Damage.FOREIGN, path, place.line, place.block.index, *told)
        if fault is not None:
            raise BadLogError(fault)
        yield batch
