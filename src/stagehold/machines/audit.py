"""Reading a log back: is it whole and legal, what does it amount to, where do two of them part.

Owns the judgements `verify`, `replay`, `diff` and `stats`. It works from logs alone, never from a live
engine, and in bounded memory: some tens of thousands of records at a time, and a few numbers an instance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from stagehold.machines.audit_check import Chain, Checker
from stagehold.machines.audit_diff import Difference, Differs, diff
from stagehold.machines.audit_read import BadLogError, Damage, Fault, batches, blocks
from stagehold.machines.audit_replay import replay, standing
from stagehold.machines.declared import MACHINES
from stagehold.machines.heat import Heat, stats
from stagehold.machines.records import Totals
from stagehold.specs.declare import MachineSpec

__all__ = [
    "BadLogError",
    "Damage",
    "Difference",
    "Differs",
    "Fault",
    "Heat",
    "Verification",
    "blocks",
    "diff",
    "replay",
    "standing",
    "stats",
    "verify",
]


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. The figures cover what was found sound before the fault, if there is one."""

    path: Path
    blocks: int
    records: int
    instances: int
    totals: Totals
    digest: bytes
    fault: Fault | None

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong."""
        return self.fault is None


def verify(path: Path, *, head: bytes | None = None, machines: tuple[MachineSpec, ...] = MACHINES) -> Verification:
    """Check the log at `path`: chain, rows, continuity, births and tokens. Stops at the first fault.

    `head` is the digest of the last block as it was published elsewhere (in a tick's exchange, in a report).
    Without it a log that was cut exactly between two lines cannot be told from one of a shorter run.
    """
    chain, checker = Chain(path, machines), Checker(path, machines)
    fault = _walked(path, chain, checker)
    if fault is not None and fault.damage is Damage.MISSING_BLOCK:
        fault = _elsewhere(path, chain.index, fault)
    if fault is None and head is not None and head != chain.digest:
        found = f"{chain.digest.hex()} after {chain.index} blocks"
        fault = Fault(Damage.CUT, path, chain.line, None, f"last digest {head.hex()}", found)
    return Verification(path, checker.blocks, checker.records, checker.instances, checker.totals, chain.digest, fault)


def _walked(path: Path, chain: Chain, checker: Checker) -> Fault | None:
    """The first fault. Rows are checked many blocks at a time, and before the block that breaks the chain."""
    try:
        for batch in batches(path):
            whole, broken = chain.whole(batch)
            fault = checker.check(whole) or broken
            if fault is not None:
                return fault
    except BadLogError as error:
        return error.fault
    return None


def _elsewhere(path: Path, index: int, fault: Fault) -> Fault:
    """The same fault, or another one where the missing block stands further down."""
    try:
        for placed in blocks(path):
            if placed.line > fault.line and placed.block.index == index:
                found = f"{fault.found}; block {index} is on line {placed.line}"
                return replace(fault, damage=Damage.SWAPPED, found=found)
    except BadLogError:
        pass  # what cannot be read further down is not what was missed here
    return fault
