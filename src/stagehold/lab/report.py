"""What a replay found, as one flat record: the JSON object and the table are made from it.

It owns the names of the fields. It judges only what can never be right: see `faults`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from stagehold.serving.scheduler import Admitted


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Tokens unless the name says otherwise. Hits are those of each request's first admission.

    `ideal_hit_tokens` is what a cache that never forgets would have hit. `recomputed_tokens` were computed though an
    earlier request had computed them. `queried_hit_tokens`, `spliced_tokens`, `losses` and `open_claim_tokens` are the
    engine's token ledger. `local_tokens` were found in host memory instead of being fetched. Of the tokens that were
    written to the store, `redundant_write_tokens` were there already; every offered token was stored, refused, dropped
    or evicted unwritten, or kept in host memory for want of a store (`kept_tokens`). `phantom_hit_tokens` were counted
    as hits and had wrong bytes at the forward. `state_entries` counts how often each state was entered, as
    machine.state.
    """

    requests: int
    prompt_tokens: int
    ideal_hit_tokens: int
    device_hit_tokens: int
    store_hit_tokens: int
    recomputed_tokens: int
    queried_hit_tokens: int
    fetched_tokens: int
    local_tokens: int
    spliced_tokens: int
    losses: dict[str, int]
    open_claim_tokens: int
    written_tokens: int
    redundant_write_tokens: int
    failed_puts: int
    offered_tokens: int
    stored_tokens: int
    kept_tokens: int
    refused_tokens: int
    dropped_tokens: int
    evicted_unwritten_tokens: int
    declines: dict[str, int]
    phantom_hit_tokens: int
    max_retries: int
    ticks: int
    violations: int
    compared_bytes: int
    wrong_bytes: int
    state_entries: dict[str, int]
    audit_log: str

    @property
    def hit_tokens(self) -> int:
        """Tokens that were not computed, wherever they came from."""
        return self.device_hit_tokens + self.store_hit_tokens

    def as_json(self) -> dict[str, Any]:
        """The fields by name, in order."""
        return asdict(self)

    def faults(self) -> list[str]:
        """What must not happen in any run, each in words; empty after a right one."""
        wrong = {
            "invariants violated": self.violations,
            "wrong bytes": self.wrong_bytes,
            "phantom hit tokens": self.phantom_hit_tokens,
            "queried hit tokens without an end": self.queried_hit_tokens
            - self.spliced_tokens
            - sum(self.losses.values())
            - self.open_claim_tokens,
            "offered tokens without an end": self.offered_tokens
            - self.stored_tokens
            - self.kept_tokens
            - self.refused_tokens
            - self.dropped_tokens
            - self.evicted_unwritten_tokens,
        }
        return [f"{count:,} {name}" for name, count in wrong.items() if count]


@dataclass(slots=True)
class HitTally:
    """Running sums over a replay's admissions; hits are counted at first admissions only."""

    device_hit_tokens: int = 0
    store_hit_tokens: int = 0
    recomputed_tokens: int = 0
    admitted: set[str] = field(default_factory=set)

    def admit(self, one: Admitted, ideal_hit: int) -> None:
        """Count one admission; `ideal_hit` tokens of the prompt had been computed for earlier requests."""
        gained = one.admission
        if one.rid in self.admitted:  # a retracted request had all of its tokens computed once
            self.recomputed_tokens += one.prefill_tokens - gained.hit_tokens
            return
        self.admitted.add(one.rid)
        self.device_hit_tokens += gained.device_hit_tokens
        self.store_hit_tokens += gained.store_hit_tokens
        self.recomputed_tokens += max(0, ideal_hit - gained.hit_tokens)
