"""Who owns what, and where every queried token ended.

Resources: each unit has one owner, entered where it is taken and struck out where it is given back. Tokens: each
claim is counted when it opens, and `queried = spliced + losses + open claims` at every moment. The ledger moves
nothing itself; it is told, and compares.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stagehold.lifecycle.errors import InvariantBroken
from stagehold.specs.outcomes import Loss


@dataclass(frozen=True, slots=True)
class Entry:
    """`units` of a resource (pages, or 1) that one machine owns for a namespace."""

    namespace: bytes
    units: int


@dataclass(slots=True)
class Ledger:
    """The books of one engine."""

    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    queried: int = 0
    spliced: int = 0
    open: int = 0
    losses: Counter[Loss] = field(default_factory=Counter)

    def take(self, resource: str, owner: int, namespace: bytes, units: int = 1) -> None:
        """Enter `units` of `resource` for machine `owner`; twice without giving back is a bug."""
        key = (resource, owner)
        if key in self.entries:
            raise InvariantBroken(f"machine {owner} takes {resource} while it owns {self.entries[key].units}")
        self.entries[key] = Entry(namespace, units)
        self.totals[resource] += units

    def give(self, resource: str, owner: int) -> int:
        """Strike out what machine `owner` has of `resource`; returns the units. Giving nothing back is a bug."""
        entry = self.entries.pop((resource, owner), None)
        if entry is None:
            raise InvariantBroken(f"machine {owner} gives back {resource}, which it does not own")
        self.totals[resource] -= entry.units
        return entry.units

    def change(self, resource: str, owner: int, units: int) -> None:
        """The owner now has `units` (a cut fetch keeps its head)."""
        namespace = self.entries[(resource, owner)].namespace
        self.give(resource, owner)
        self.take(resource, owner, namespace, units)

    def owned(self, owner: int) -> frozenset[str]:
        """The resources of one machine; a full scan, for checks only."""
        return frozenset(resource for resource, number in self.entries if number == owner)

    def open_claim(self, tokens: int) -> int:
        """A claim of `tokens` opens; returns the record's detail."""
        self.queried += tokens
        self.open += tokens
        return tokens

    def lose(self, tokens: int, reason: Loss) -> int:
        """`tokens` of open claims end without a splice; returns the record's detail (reason in the high half)."""
        self.open -= tokens
        self.losses[reason] += tokens
        return tokens | (reason << 32)

    def splice(self, tokens: int, covered: int) -> int:
        """A claim ends: `tokens` were loaded, `covered` the tree had by then; returns the record's detail."""
        self.open -= tokens + covered
        self.spliced += tokens
        self.losses[Loss.COVERED] += covered
        return tokens | (covered << 32)

    @property
    def token_gap(self) -> int:
        """Queried - spliced - losses - open claims, in tokens; anything but 0 is a breach."""
        return self.queried - self.spliced - sum(self.losses.values()) - self.open
