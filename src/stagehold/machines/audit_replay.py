"""What a log amounts to, rebuilt many records at a time: where every instance stands, its counters, the tokens.

Owns the rebuilding from files; `records.replay` does the same block by block, and tests hold one against the other.
The chain is not looked at: `audit.verify` judges that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np

from stagehold.machines.audit_check import Checker
from stagehold.machines.audit_read import BadLogError, Damage, Fault, Placed, batches, records_of
from stagehold.machines.audit_tables import Ints, tables
from stagehold.machines.declared import MACHINES, declaration_hash
from stagehold.machines.records import DIGEST_BYTES, Replayed, Situation
from stagehold.specs.declare import MachineSpec

_INSTANCE = struct.Struct("<IBB")


def replay(path: Path, machines: tuple[MachineSpec, ...] = MACHINES) -> Replayed:
    """State and counters of every instance and the token totals; `BadLogError` names line and block."""
    rebuilt, digest = _Rebuilding(Checker(path, machines)), bytes(DIGEST_BYTES)
    for batch in batches(path):
        rebuilt.add(batch)
        digest = batch[-1].block.digest if batch else digest
    return Replayed(rebuilt.instances(), rebuilt.checker.totals, digest)


def standing(replayed: Replayed, machines: tuple[MachineSpec, ...] = MACHINES) -> bytes:
    """16 bytes over all that was rebuilt: two logs of the same run, or two replays of one log, give the same."""
    places = {spec.name: place for place, spec in enumerate(machines)}
    told = blake2b(digest_size=DIGEST_BYTES)
    for number, instance in sorted(replayed.instances.items()):
        counters = bytes(repr(tuple(instance.counters.values())), "ascii") if instance.counters else b""
        told.update(_INSTANCE.pack(number, places[instance.machine], instance.state) + counters)
    totals = replayed.totals
    losses = [totals.losses[loss] for loss in sorted(totals.losses)]
    told.update(repr((totals.queried, totals.spliced, totals.refused, losses)).encode())
    return told.digest()


@dataclass(slots=True)
class _Rebuilding:
    """The checker follows states and tokens; this counts."""

    checker: Checker
    counters: Ints = field(init=False)
    """Shape (instances + 1, most counters of a machine): the first row is of the one that never was."""

    def __post_init__(self) -> None:
        width = max(len(spec.counters) for spec in self.checker.machines)
        self.counters = np.zeros((1, width), np.int64)

    def add(self, batch: Sequence[Placed]) -> None:
        """The next blocks."""
        machines, path = self.checker.machines, self.checker.path
        ours = declaration_hash(machines)
        for at, placed in enumerate(batch):
            if placed.block.declaration != ours:
                self._follow(batch[:at])
                told = ours.hex(), placed.block.declaration.hex()
                raise BadLogError(Fault(Damage.FOREIGN, path, placed.line, placed.block.index, *told))
        self._follow(batch)

    def _follow(self, batch: Sequence[Placed]) -> None:
        checker = self.checker
        fault = checker.check(batch)
        if fault is not None:
            raise BadLogError(fault)
        fresh = len(checker.numbers) - len(self.counters)
        self.counters = np.concatenate([self.counters, np.zeros((fresh, self.counters.shape[1]), np.int64)])
        records = records_of(batch)
        column = tables(checker.machines).counts[records["row"]]
        counted = np.flatnonzero(column >= 0)
        who = np.searchsorted(checker.numbers, records["instance"][counted].astype(np.int64))
        np.add.at(self.counters, (who, column[counted]), 1)

    def instances(self) -> dict[int, Situation]:
        """Every instance ever born, by number."""
        checker = self.checker
        names = [(spec.name, tuple(spec.counters)) for spec in checker.machines]
        states = [{int(state.name): state.name for state in spec.states} for spec in checker.machines]
        columns = (checker.numbers, checker.machine, checker.state)
        rows = zip(*(column[1:].tolist() for column in columns), self.counters[1:].tolist(), strict=True)
        return {
            number: Situation(
                names[machine][0], states[machine][state], dict(zip(names[machine][1], counts, strict=False))
            )
            for number, machine, state, counts in rows
        }
