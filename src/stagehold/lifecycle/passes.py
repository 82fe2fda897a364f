"""One pass of the engine from poll to record, with the exchange in its middle and what may come of that.

Owns the group, and what is done when its ranks have recorded different things or one of them is gone: nothing of the
tick is applied before that is known. The phases themselves are in `tick`.
"""

from __future__ import annotations

import logging

from stagehold.lifecycle import inputs
from stagehold.lifecycle.breaches import Breaches
from stagehold.lifecycle.errors import Diverged, Misuse, RankLost
from stagehold.lifecycle.facts import TAIL, Agreement, unpack
from stagehold.lifecycle.parts import Compared, Parts
from stagehold.lifecycle.ranks.group import Facts, Group
from stagehold.lifecycle.ranks.testimony import Divergence, compare, read, testify
from stagehold.lifecycle.stats import Tally
from stagehold.specs.outcomes import Agreed
from stagehold.specs.tick import TickState

LOG = logging.getLogger("stagehold")


class Passes:
    """The passes of one engine. `stopped_by` says why there are no more of them."""

    def __init__(self, parts: Parts, group: Group, tally: Tally, breaches: Breaches) -> None:
        self._parts = parts
        self._group = group
        parts.core.operations.shared = group.size > 1 or group.staged
        self._tally = tally
        self._breaches = breaches
        self.stopped_by = "the engine was closed"

    def run(self, *, advance_retries: bool = True) -> None:
        """A whole pass."""
        self.proceed(self._exchange(self.poll()), advance_retries=advance_retries)

    def poll(self) -> Facts:
        """Collect local facts; acts on nothing."""
        parts = self._parts
        if parts.core.visits:
            names = ", ".join(str(plan.handle) for plan in parts.core.visits.values())
            raise Misuse(f"tick: visits are open ({names}); end each with commit or release in its own pass")
        if parts.tick.state is TickState.AGREEING:
            raise Misuse("tick: the exchange of the pass before has not ended; give what was agreed on to proceed, "
                         "or close this engine")  # fmt: skip
        parts.silent.tick(parts.tick)
        facts = parts.phases.poll()
        parts.silent.polled(parts.tick)
        return facts

    def _exchange(self, facts: Facts) -> Facts:
        """The one collective of the pass; a rank that is not there ends all passes of this one, too."""
        try:
            return self._group.exchange(facts)
        except RankLost:
            self.stopped_by = "a rank of its group is gone"
            self._parts.recorded.timeout(self._parts.tick)
            self._parts.phases.record()
            raise

    def proceed(self, agreed: Facts, *, advance_retries: bool = True) -> None:
        """Act on what all ranks agreed on."""
        parts, step = self._parts, self._parts.silent
        window = parts.core.config.operation_window
        found = unpack(inputs.agreed("proceed", agreed, 3 * window + TAIL))
        self._agree(found)
        parts.phases.apply(agreed, advance_retries=advance_retries)
        step.applied(parts.tick)
        parts.phases.time()
        step.timed(parts.tick)
        parts.phases.issue()
        step.issued(parts.tick)
        try:
            parts.phases.record()
        finally:  # the block is closed, whatever the sink makes of it
            step.recorded(parts.tick)
        self.check()

    def _agree(self, found: Agreement) -> None:
        """Ranks that did not record the same stop here, or let go of the store, before anything is applied."""
        parts = self._parts
        if found.same:
            parts.phases.agreed(found)
            parts.silent.agreed(parts.tick, Compared(same=True))
            return
        divergence = self._compared()
        what = str(divergence or "the ranks' blocks of the tick before are not the same")
        stopped = (
            parts.recorded.agreed(parts.tick, Compared(same=False, divergence=divergence, staged=self._group.staged))
            is Agreed.DIVERGED
        )
        where = f"tick {parts.core.clock.tick}: {what}"
        if stopped:
            self.stopped_by = "the ranks diverged"
            parts.phases.record()
            raise Diverged(where, divergence)
        LOG.error("%s; going on without the store", where)
        parts.core.settle()
        parts.let_go_of_the_store()  # whether or not one was in use: host memory has served alone until now
        parts.core.settle()

    def _compared(self) -> Divergence | None:
        """The one further exchange: every rank gives its word, and all find the same first difference."""
        told = self._group.gather(testify(self._parts.core, self._tally.last))
        return compare([read(message) for message in told])

    def check(self) -> None:
        """Look at the books."""
        self._tally.violations += self._breaches.look(self._parts.core)
