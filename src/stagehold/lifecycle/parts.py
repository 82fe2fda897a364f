"""What an engine is made of, and the acts in which more than one part has a share: attach, flush, drop, end.

Owns the rules of *tick*, whose two steppers it holds. It is put together in `assembly`, and decides nothing that the
rules of another machine decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from stagehold.cache.stores.protocol import Store
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.ranks.testimony import Divergence
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.running import Running
from stagehold.lifecycle.tick import Tick
from stagehold.lifecycle.visits import Visits
from stagehold.machines import Machine, Stepper
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Agreed, DivergencePolicy
from stagehold.specs.request import RequestState
from stagehold.specs.tick import TickState
from stagehold.specs.write import WriteState

IN_USE = (AttachmentState.ATTACHING, AttachmentState.ATTACHED)
"""Where the link stands while a store is in use."""


class Compared(NamedTuple):
    """Whether the ranks recorded the same, where they part if that could be found, and whether they are staged."""

    same: bool
    divergence: Divergence | None = None
    staged: bool = False


class TickRules:
    """Decision `agreed`; effects of the two rows that are recorded."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def agreed(self, _m: Machine, found: Compared) -> Agreed:
        """SAME when every rank closed the same block last; what else happens is the policy's, where it has a choice.

        Ranks whose device tiers differ cannot go on without the store either, stages of a pipeline cannot let go of it
        in one tick, and those that are in quarantine have nothing left to let go of.
        """
        core, divergence = self.core, found.divergence
        if found.same:
            return Agreed.SAME
        salvageable = not core.quarantined and not found.staged and (divergence is None or divergence.salvageable)
        stop = core.config.divergence_policy is DivergencePolicy.STOP
        return Agreed.DIVERGED if stop or not salvageable else Agreed.QUARANTINE

    def quarantine(self, _m: Machine, _arg: Any) -> None:
        """Go on without the store tier: every rank detaches in this very tick, before it applies anything.

        Each rank's IO runs out at its own time from here on, so nobody may wait for any of it.
        """
        self.core.quarantined = True
        if self.core.link.state in IN_USE:
            self.core.post(self.core.steps.attachment.detach, self.core.link)

    def halt(self, _m: Machine, _arg: Any) -> None:
        """Nothing is left to do when the engine closes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is made of."""

    core: Core
    retries: RetryRules
    holds: HoldRules
    visits: Visits
    running: Running
    phases: Tick
    tick: Machine
    silent: Stepper  # steps the ordinary pass, which leaves no record
    recorded: Stepper  # steps what stops a pass, or changes what it does

    # The store

    def attach(self, store: Store) -> None:
        """Use `store` from now on; one that it replaces is closed once nothing of it is in flight."""
        core = self.core
        if core.quarantined:
            raise Misuse("attach: the ranks recorded different things, and go on without a store; start them anew")
        if core.link.state is not AttachmentState.DETACHED:
            raise Misuse(f"attach: a store is {core.link.state.name.lower()}; detach it and tick until it is detached")
        if core.store is not None and core.store is not store:
            core.former.append(core.store)
        core.former = [former for former in core.former if former is not store]
        core.store = store
        if not core.operations.asked:  # else a later tick does it; one that is busy with copies alone need not wait
            self.phases.close_former()
        core.beliefs.forget()
        core.steps.attachment.attach(core.link)
        core.settle()

    def detach(self) -> None:
        """Stop using the store; refused where none is in use."""
        core = self.core
        if core.link.state not in IN_USE:
            raise Misuse(f"detach: no store is in use, the link is {core.link.state.name.lower()}")
        core.steps.attachment.detach(core.link)
        core.settle()

    # Letting go

    def flush(self) -> None:
        """Nothing is kept, neither on the device nor in host memory; refused while anything runs, loads or copies."""
        core = self.core
        loading = sum(h.state is HoldState.LOADING for h in core.holds.values())
        copying = sum(w.state is WriteState.COPYING for w in core.writes.values())
        if core.committed or loading or copying:
            busy = f"{core.committed} requests are committed, {loading} holds load, {copying} writes copy"
            raise Misuse(f"flush: {busy}; wait for their end")
        self.drop_all()
        core.settle()
        core.tree.flush()
        core.stocks.flush_hosts()

    def drop_all(self) -> None:
        """Every hold and write that is not bound to an IO is told to stop."""
        core = self.core
        for h in list(core.holds.values()):
            if h.state in (HoldState.PARKED, HoldState.FETCHING, HoldState.READY):
                core.steps.hold.drop(h)
                core.settle()
        for w in core.writes.values():
            w.data.unwanted = True
        self._drop_writes()

    def _drop_writes(self) -> None:
        for w in list(self.core.writes.values()):
            if w.state in (WriteState.QUEUED, WriteState.STORING):
                self.core.steps.write.drop(w)
                self.core.settle()

    def let_go_of_the_store(self) -> None:
        """What the store has a part in is told to stop; nobody waits for its answer, or to ask it again.

        Where host memory goes on alone, holds that wait for nothing of the store stay, and so do bytes that were
        copied for a put. In quarantine everything goes, since each rank's copies end in a tick of its own.
        """
        core = self.core
        if not core.alone:
            self.drop_all()
        else:
            for h in list(core.holds.values()):
                if h.state is HoldState.FETCHING:
                    core.steps.hold.drop(h)
                    core.settle()
            self._drop_writes()
        core.news += 1
        self._give_up_lookups()
        self.retries.detached()

    def _give_up_lookups(self) -> None:
        """Their answers say nothing of another store, which may be attached before they come."""
        for m in list(self.core.requests.values()):
            if m.state is RequestState.LOOKUP:
                self.core.steps.request.timeout(m)
                self.core.settle()

    def drop_queued(self) -> None:
        """Every write that has not begun is given up."""
        core = self.core
        for w in list(core.writes.values()):
            if w.state is WriteState.QUEUED:
                core.steps.write.drop(w)
                core.settle()

    # The end

    def end(self) -> None:
        """Every request has gone: end the rest, close the stores, and wait for all IO."""
        core = self.core
        self.drop_all()
        core.settle()
        core.steps.attachment.close(core.link)
        core.settle()
        self.phases.close_stores()
        self.run_out()
        core.stocks.flush_hosts()
        self.stop()

    def run_out(self) -> None:
        """The store is closed, so every IO has ended: give its buffers back, by operation number."""
        operations = self.core.operations
        for operation in sorted(operations.live.values(), key=lambda operation: operation.number):
            if not operations.withdraw(operation):
                operations.retire(operation)
            operation.good = 0
            self.phases.end(operation)
        assert not operations.live, "an operation began while the engine was closing"

    def stop(self) -> None:
        """The pass is over for good, unless a divergence has ended it before; the last block is closed."""
        if self.tick.state is not TickState.STOPPED:
            self.recorded.halt(self.tick)
        if self.core.config.tier:
            self.phases.record()

    def take_apart(self) -> None:
        """Cut the ties that lead from the parts back to each other, so that a closed engine is freed at once."""
        for stepper in (*vars(self.core.steps).values(), self.silent, self.recorded):
            stepper.unbind()
        vars(self.core.steps).clear()
        self.phases.link_rules.decree = _no_decree


def _no_decree() -> None:
    """What is told to drop everything once nothing is left."""
