"""Who owns what, and where every queried token ended.

Resources: each unit has one owner, entered where it is taken and struck out where it is given back. Tokens: each
claim is counted when it opens, and `queried = spliced + losses + open claims` at every moment. The ledger moves
nothing itself; it is told, and compares. What it is told before the thing is done, it can still prevent: who gives
units back asks here first, and keeps his hands off units that are not his.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stagehold.cache.tenants import Quota
from stagehold.lifecycle.errors import InvariantBroken
from stagehold.specs.outcomes import Loss


@dataclass(frozen=True, slots=True)
class Entry:
    """`units` of a resource (pages, or 1) that one machine owns for a namespace."""

    namespace: bytes
    units: int


@dataclass(frozen=True, slots=True)
class Breach:
    """What a machine told the ledger that cannot be."""

    owner: int
    what: str


@dataclass(slots=True)
class Ledger:
    """The books of one engine. A breach raises where `strict`; else it is noted in `breaches`, for the tick."""

    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    shares: dict[str, Quota] = field(default_factory=dict)  # of the resources that tenants have quotas of
    queried: int = 0
    spliced: int = 0
    open: int = 0
    losses: Counter[Loss] = field(default_factory=Counter)
    strict: bool = True
    breaches: list[Breach] = field(default_factory=list)

    def take(self, resource: str, owner: int, namespace: bytes, units: int = 1) -> None:
        """Enter `units` of `resource` for machine `owner`; twice without giving back is a breach."""
        key = (resource, owner)
        had = self.entries[key].units if key in self.entries else None
        if had is not None:
            self._breach(owner, f"machine {owner} takes {resource} while it owns {had}")
        self.entries[key] = Entry(namespace, units + (had or 0))
        self._count(resource, namespace, units)

    def _count(self, resource: str, namespace: bytes, units: int) -> None:
        self.totals[resource] += units
        quota = self.shares.get(resource)
        if quota is not None:
            quota.add(namespace, units)

    def give(self, resource: str, owner: int) -> bool:
        """Strike out what machine `owner` has of `resource`. False, and a breach, where it has none.

        Then the caller must leave the units alone: they are somebody else's by now, or in doubt, and what is in
        doubt stays out of circulation.
        """
        entry = self.entries.pop((resource, owner), None)
        if entry is None:
            self._breach(owner, f"machine {owner} gives back {resource}, which it does not own")
            return False
        self._count(resource, entry.namespace, -entry.units)
        return True

    def change(self, resource: str, owner: int, units: int) -> None:
        """The owner now has `units` (a cut fetch keeps its head); a breach where it has none."""
        entry = self.entries.get((resource, owner))
        if entry is None:
            self._breach(owner, f"machine {owner} changes {resource}, which it does not own, to {units}")
            return
        self._count(resource, entry.namespace, units - entry.units)
        self.entries[(resource, owner)] = Entry(entry.namespace, units)

    def _breach(self, owner: int, what: str) -> None:
        if self.strict:
            raise InvariantBroken(what)
        self.breaches.append(Breach(owner, what))

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
