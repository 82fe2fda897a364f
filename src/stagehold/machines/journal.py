"""Where steps leave their records until the tick closes its block.

Owns the open block and the chain of digests. It keeps nothing older than that: each closed block goes to the
sink and to the caller. It renders nothing and reads nothing back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagehold.machines.declared import MACHINES, declaration_hash
from stagehold.machines.records import DIGEST_BYTES, Birth, BirthKey, Block, chain_digest
from stagehold.specs.declare import MachineSpec

Sink = Callable[[Block], None]


@dataclass(frozen=True, slots=True)
class Saved:
    """A journal at one moment, for `Journal.restore`: counters, chain and the open block."""

    next_number: int
    next_index: int
    digest: bytes
    records: tuple[bytes, ...]
    births: tuple[Birth, ...]


class Journal:
    """Births and records of the open block of one engine, and the digest of the last one closed.

    `records` is flat, two pieces a record (the instance's tag, the rest): almost every step finds both ready
    made, and joining them is the cheapest packing there is. Compiled steps hold on to this very list: it is
    cleared, never replaced.
    """

    __slots__ = (
        "_next_number",
        "births",
        "declaration",
        "digest",
        "machines",
        "next_index",
        "records",
        "sink",
    )

    def __init__(self, machines: tuple[MachineSpec, ...] = MACHINES, sink: Sink | None = None) -> None:
        self.machines = machines
        self.declaration = declaration_hash(machines)
        self.digest = bytes(DIGEST_BYTES)
        self.next_index = 0
        self.records: list[bytes] = []
        self.births: list[Birth] = []
        self.sink = sink
        self._next_number = 0

    def machine_index(self, spec: MachineSpec) -> int:
        """The position of `spec`; ValueError if this journal's declaration hash does not cover exactly it."""
        for index, known in enumerate(self.machines):
            if known == spec:
                return index
        names = ", ".join(known.name for known in self.machines)
        raise ValueError(
            f"the journal does not know this declaration of machine {spec.name!r} (it records: {names}); "
            "build it with Journal(machines=(...)) from the declarations that will be bound"
        )

    def next_number(self) -> int:
        """A number that no other instance of this engine has; ascending, in order of birth."""
        number = self._next_number
        self._next_number = number + 1
        return number

    def born(self, machine: int, state: int, key: BirthKey) -> int:
        """Enter a birth in the open block; the number of the new instance."""
        number = self.next_number()
        self.births.append(Birth(number, machine, state, key))
        return number

    def close_block(self, tick: int) -> Block:
        """Pack what happened since the last call, chain it, hand it to the sink; an empty tick, too."""
        records = b"".join(self.records)
        births = tuple(self.births)
        header = (self.declaration, self.digest, self.next_index, tick)
        digest = chain_digest(header, births, records)
        block = Block(self.next_index, tick, self.declaration, self.digest, births, records, digest)
        self.digest = digest
        self.next_index += 1
        self.records.clear()
        self.births.clear()
        if self.sink is not None:
            self.sink(block)
        return block

    def save(self) -> Saved:
        """This moment as a value that later steps do not change."""
        return Saved(self._next_number, self.next_index, self.digest, tuple(self.records), tuple(self.births))

    def restore(self, saved: Saved) -> None:
        """Go back to `saved`; what the sink has been given since is not taken back."""
        self._next_number, self.next_index, self.digest = saved.next_number, saved.next_index, saved.digest
        self.records[:] = saved.records
        self.births[:] = saved.births
