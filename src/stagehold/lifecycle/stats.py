"""What an engine counts about itself, from its own records: one source for metrics, tables and tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from stagehold.lifecycle.core import Core
from stagehold.machines import MACHINES, Block, Sink, rows_of


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures since the start of the engine; tokens unless the name says otherwise."""

    ticks: int
    queried: int
    spliced: int
    open_claims: int
    losses: dict[str, int]
    fetched: int
    local: int
    state_entries: dict[str, int]
    rows_taken: dict[str, int]
    refused_events: int
    violations: int
    owned: dict[str, int]
    live_machines: int
    stored_pages: int
    offered_pages: int
    dropped_pages: int
    max_reissues: int
    counts: dict[str, int]


class Tally:
    """Sits between the journal and the embedder's sink, and counts rows and births block by block."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._rows: Counter[int] = Counter()
        self._born: Counter[tuple[int, int]] = Counter()
        self.violations = 0
        self.max_issues = 0  # launches of the attempt that had most of them, among those that ended
        self.last: Block | None = None

    def block(self, block: Block) -> None:
        """One tick's block."""
        self.last = block
        if block.records:
            codes, counts = np.unique(block.table()["row"], return_counts=True)
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
                self._rows[code] += count
        for birth in block.births:
            self._born[(birth.machine, birth.state)] += 1
        if self._sink is not None:
            self._sink(block)

    def stats(self, core: Core) -> Stats:
        """The figures now."""
        ledger = core.ledger
        return Stats(
            ticks=core.clock.tick,
            queried=ledger.queried,
            spliced=ledger.spliced,
            open_claims=ledger.open,
            losses={loss.name.lower(): tokens for loss, tokens in sorted(ledger.losses.items()) if tokens},
            fetched=core.counts["fetched_tokens"],
            local=core.counts["local_tokens"],
            state_entries=self.state_entries(),
            rows_taken=self.rows_taken(),
            refused_events=sum(count for code, count in self._rows.items() if code & 0xFF == 0xFF),
            violations=self.violations,
            owned={resource: units for resource, units in sorted(ledger.totals.items()) if units},
            live_machines=len(core.requests) + len(core.holds) + len(core.writes),
            stored_pages=core.counts["stored_pages"],
            offered_pages=core.counts["offered_pages"],
            dropped_pages=core.counts["dropped_pages"],
            max_reissues=max(0, self._max_issues(core) - 1),
            counts={name: count for name, count in sorted(core.counts.items()) if count},
        )

    def _max_issues(self, core: Core) -> int:
        return max([self.max_issues, *(m.issues for m in core.requests.values())])

    def state_entries(self) -> dict[str, int]:
        """How often each state was entered (rows that stay do not enter), as `machine.state`."""
        entries: Counter[str] = Counter()
        for (machine, state), count in sorted(self._born.items()):
            spec = MACHINES[machine]
            entries[f"{spec.name}.{type(spec.initial)(state).name.lower()}"] += count
        for code, count in sorted(self._rows.items()):
            if code & 0xFF != 0xFF:
                spec = MACHINES[code >> 8]
                row = rows_of(spec)[code & 0xFF]
                if row.source is not row.target:
                    entries[f"{spec.name}.{row.target.name.lower()}"] += count
        return dict(entries)

    def rows_taken(self) -> dict[str, int]:
        """How often each row was taken, as `machine.source.event.OUTCOME`."""
        taken: dict[str, int] = {}
        for code, count in sorted(self._rows.items()):
            if code & 0xFF != 0xFF:
                spec = MACHINES[code >> 8]
                row = rows_of(spec)[code & 0xFF]
                outcome = f".{row.outcome.name}" if row.outcome is not None else ""
                source = row.source if isinstance(row.source, str) else row.source.name.lower()
                taken[f"{spec.name}.{source}.{row.event}{outcome}"] = count
        return taken
