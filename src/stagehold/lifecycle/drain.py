"""The durable end of a server: every write ends, or is given up with a reason, within a number of ticks.

Owns the report. What a drain says was stored is what the next start finds; what it says was not is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagehold.lifecycle.parts import Parts
from stagehold.lifecycle.stats import Stats
from stagehold.specs.write import WriteState

REASONS = {
    "write_start_gone": "evicted",
    "write_start_copy": "evicted",
    "write_timeout": "too_late",
    "write_drop": "not_begun",
    "write_copied_unwanted": "unwanted",
    "write_copied_kept": "no_store",
    "write_put_ended_spent": "failed",
    "write_offer_full": "refused",
    "write_offer_uncovered": "refused",
    "write_offer_never_fits": "refused",
}
"""Why pages were not stored, by the counter that has them."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Pages, of all components. `dropped` has those given up, by reason; `in_flight` had not ended its copy or put.

    What is in flight may still be stored, before `close` returns; nobody believes it.
    """

    stored: int
    dropped: dict[str, int]
    in_flight: int

    @property
    def unwritten(self) -> int:
        """Pages that nobody has acknowledged."""
        return sum(self.dropped.values()) + self.in_flight


def drain(
    parts: Parts, run: Callable[[], None], stats: Callable[[], Stats], ticks: int, pause: Callable[[], None] | None
) -> Drained:
    """Run at most `ticks` passes until every write has ended; then give up what has not begun."""
    core, before = parts.core, stats()
    for _ in range(ticks):
        parts.phases.offers.held_back()
        if not core.writes:
            break
        if pause is not None:
            pause()
        run()
    held = len(core.held_back.pages)
    core.held_back.pages.clear()
    flying = sum(w.data.pages for w in core.writes.values() if w.state in (WriteState.COPYING, WriteState.STORING))
    parts.drop_queued()
    after = stats()
    dropped = {"not_begun": held} if held else {}
    for counter, reason in REASONS.items():
        tokens = after.count(counter).tokens - before.count(counter).tokens
        if tokens:
            dropped[reason] = dropped.get(reason, 0) + tokens // core.config.page_size
    if lost := after.evicted_held_back_pages - before.evicted_held_back_pages:
        dropped["evicted"] = dropped.get("evicted", 0) + lost
    return Drained(after.stored_pages - before.stored_pages, dropped, flying)
