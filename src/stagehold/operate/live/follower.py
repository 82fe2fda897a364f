"""A view of an engine from its blocks alone: who stands where, what flows, who waits longest, what was declined.

Owns the adding up. Memory goes with what is alive and with `RECENT` and `FLOWS`; it judges no log (`audit verify`
does), and what a block does not say (pools, bytes) comes from elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from stagehold.lifecycle.occupancy import Occupancy
from stagehold.machines import MACHINES, labels
from stagehold.machines.audit_causes import Verdict
from stagehold.machines.audit_explain import Teller
from stagehold.machines.audit_tables import book, flows, tables
from stagehold.machines.records import Block, HandleKey, Totals

RECENT = 50
"""Troubles that are kept: about what one looks through."""
FLOWS = 240
"""Points of a flow: a block each, those of four minutes at one a second."""
SLOW = 20
"""Requests that have waited longest."""

TROUBLE = frozenset({
    Verdict.DECLINED, Verdict.RETRIED, Verdict.CAPPED, Verdict.LOST, Verdict.DEFERRED, Verdict.RECOMPUTED,
    Verdict.OVERTAKEN, Verdict.REFUSED,
})  # fmt: skip
"""What a request met that kept it from its prefix, or put it off."""


@dataclass(slots=True)
class Follower:
    """Takes blocks in order. `view` is plain data, for JSON."""

    blocks: int = 0
    tick: int = 0
    totals: Totals = field(default_factory=Totals)
    _teller: Teller = field(default_factory=lambda: Teller(None))
    _occupancy: Occupancy = field(default_factory=Occupancy)
    _recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT))
    _flows: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=FLOWS))
    _troubles: Counter[str] = field(default_factory=Counter)
    _names: dict[int, str] = field(default_factory=dict)

    def take(self, block: Block) -> None:
        """The next block. Raises what a block of other declarations raises: KeyError, IndexError or ValueError."""
        records = block.table()
        self._teller.take(block)
        for birth in block.births:
            key = birth.key
            if birth.number in self._teller.attempts and isinstance(key, HandleKey):
                self._names[birth.number] = key.rid if key.attempt == 0 else f"{key.rid} #{key.attempt}"
        self._occupancy.add(block.tick, records.tolist(), block.births)
        flown = flows(tables(MACHINES), records)
        book(self.totals, flown)
        self._flows.append((block.tick, int(flown.queried.sum()), int(flown.spliced.sum()), int(flown.lost.sum())))
        self._told(dict.fromkeys((*(birth.number for birth in block.births), *records["instance"].tolist())))
        self.blocks, self.tick = self.blocks + 1, block.tick

    def _told(self, touched: dict[int, None]) -> None:
        """Keep the troubles of those that something happened to; a claim's hold may have told of its requests, too."""
        scene, attempts = self._teller.scene, self._teller.attempts
        for number in list(touched):
            hold = scene.holds.get(number)
            touched.update(dict.fromkeys(hold.claims if hold is not None else ()))
        for number in touched:
            attempt = attempts.get(number)
            if attempt is None:
                continue
            for moment in attempt.moments:
                if moment.verdict in TROUBLE:
                    name = moment.cause.name.lower()
                    self._troubles[name] += 1
                    told = {"verdict": moment.verdict.value, "cause": name, "sentence": str(moment)}
                    self._recent.append({"tick": moment.tick, "request": self._names[number], **told})
            if attempt.over:
                self._teller.forget(number)
                self._names.pop(number)
            else:
                attempt.moments.clear()

    def view(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; tokens and ticks."""
        scene = self._teller.scene
        states: dict[str, dict[str, int]] = {}
        for name, count in self._occupancy.standing().items():
            machine, _, state = name.partition(".")
            states.setdefault(machine, {})[state] = count
        return {
            "blocks": self.blocks,
            "tick": self.tick,
            "store": {"link": labels.word(scene.link), "breaker": labels.word(scene.breaker)},
            "states": states,
            "tokens": {
                "queried": self.totals.queried,
                "spliced": self.totals.spliced,
                "lost": {loss.name.lower(): lost for loss, lost in self.totals.losses.items() if lost},
            },
            "flows": [list(point) for point in self._flows],
            "slow": self._slow(),
            "troubles": dict(self._troubles.most_common()),
            "recent": list(reversed(self._recent)),
        }

    def _slow(self) -> list[dict[str, Any]]:
        """Those that wait to be admitted, the longest first."""
        waiting = [a for a in self._teller.attempts.values() if a.state != "committed"]
        oldest = sorted(waiting, key=lambda attempt: (attempt.arrived, attempt.number))[:SLOW]
        return [
            {
                "request": self._names[one.number],
                "state": one.state,
                "ticks": self.tick - one.arrived,
                "in_state": self.tick - self._teller.since(one.number),
                "launches": self._teller.launches(one.number),
            }
            for one in oldest
        ]
