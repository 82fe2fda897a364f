"""Visits: `select` looks at one request in one pass, `commit` or `release` ends the visit in the same pass.

Selecting allocates no slot and moves no byte. A request that the store keeps waiting is skipped for as long as its
wait clock runs, and blocks nobody. Where there is no room for it, it waits for that, and the clock stands.
"""

from __future__ import annotations

from collections.abc import Callable

from stagehold.lifecycle import brought
from stagehold.lifecycle.admission import AdmissionRules, Delivery
from stagehold.lifecycle.claims import Look
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Admission, HoldData, Plan, RequestData, Skip
from stagehold.lifecycle.errors import Misuse, PartialDelivery
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.inputs import whole
from stagehold.lifecycle.looks import Looks
from stagehold.machines import Machine
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import AdmissionOutcome, Commit, PrefetchPolicy, SkipReason, StillCovered
from stagehold.specs.request import RequestState

Deliver = Callable[[HoldData, int, int], int]
"""`deliver(hold, live, promised)`: the page up to which the hold can be spliced now; 0 if it brings nothing."""

REFUSALS = {
    Commit.NO_ROOM: AdmissionOutcome.NO_ROOM,
    Commit.DEFERRED: AdmissionOutcome.DEFERRED,
    Commit.DEFER_CAP: AdmissionOutcome.DEFER_CAP,
    Commit.UNFIT: AdmissionOutcome.UNFIT,
}

LOOKS_IN_ONE_VISIT = 4
"""Moves that one visit may see before it gives up for this pass: covered, shrunk, launched again, cut."""


def deliver_all(hold: HoldData, live: int, promised: int) -> int:
    """What a verified hold delivers: everything up to its end, or more where the tree has grown past it."""
    return max(hold.last, live, promised)


class Visits:
    """The open visits of one pass."""

    def __init__(self, core: Core, admission: AdmissionRules, holds: HoldRules, deliver: Deliver) -> None:
        self.core = core
        self.admission = admission
        self.holds = holds
        self.deliver = deliver
        self.looks = Looks(core)
        self._serial = 0

    # Select

    def select(self, m: Machine, budget: int) -> Plan | Skip:
        """A plan, or the reason why there is none in this pass."""
        if m.number in self.core.visits:
            raise Misuse(f"select({m.data.handle}): its visit is open; commit or release it first")
        if budget < 1:
            return Skip(m.data.handle, SkipReason.NO_BUDGET)
        for _ in range(LOOKS_IN_ONE_VISIT):
            state = m.state
            reason = self._look(m)
            if reason is not None:
                return Skip(m.data.handle, reason)
            settled = m.state is state and state is not RequestState.STAGED
            if settled or m.state is RequestState.ANCHOR_LOCKED:
                return self._open(m, budget)
        return Skip(m.data.handle, SkipReason.RETRY_NOW)

    def _look(self, m: Machine) -> SkipReason | None:
        """One look; it may move the request, and says why to skip it."""
        match m.state:
            case RequestState.LOOKUP:
                return SkipReason.WAITING_LOOKUP if self._waits(m, None) else None
            case RequestState.STAGED:
                return self._look_at_hold(m)
            case RequestState.COVERED:
                self._look_at_cover(m)
                return None
            case RequestState.QUEUED | RequestState.RETRY | RequestState.CAPPED:
                return None
            case _:
                raise Misuse(
                    f"select({m.data.handle}): it is {m.state.name.lower()}; only a request that waits can be selected"
                )

    def _look_at_hold(self, m: Machine) -> SkipReason | None:
        core, data = self.core, m.data
        hold = core.holds[data.hold]
        if hold.state is HoldState.PLANNED:
            return SkipReason.SIBLING_VISIT
        look = Look(self.looks.full(m), self.looks.joint(m))
        undecided = look.joint < hold.data.last and look.live >= hold.data.anchor
        if undecided and hold.state is not HoldState.READY:
            if self._waits(m, hold):
                return SkipReason.WAITING_FETCH
            if hold.state is HoldState.FETCHING and self.holds.usable(hold):
                core.steps.hold.cut(hold)
                core.settle()
        ready = undecided and hold.state is HoldState.READY
        if ready and not core.protectable(data.chain, min(look.live, hold.data.last)):
            # The visit would lock pages that are promised to others, and they may ask for them in this very pass.
            return SkipReason.NO_ROOM
        core.steps.request.evaluate(m, look)
        core.settle()
        return None

    def _look_at_cover(self, m: Machine) -> None:
        """A cover that has shrunk launches again before it is admitted with less."""
        live = self.looks.joint(m)
        if self.admission.still_covered(m, live) is StillCovered.SHRUNK:
            self.core.steps.request.admit(m, live)
            self.core.settle()

    def _waits(self, m: Machine, hold: Machine | None) -> bool:
        """Whether the wait clock still runs; without a hold it is a lookup's.

        The first visit that finds room for the request starts it: until then, nobody waits for the store.
        """
        data: RequestData = m.data
        pages = 0 if hold is None else hold.data.last - hold.data.start
        gate = self.core.gate if self._is_gated(hold) else None
        budget = 0 if gate is not None and gate.bars(data.handle) else self._wait_budget(pages)
        if budget == 0:
            return False
        if data.wait_from < 0:
            if not self.admission.fits(data, self.looks.joint(m)):
                return True
            data.wait_from = self.core.clock.tick
        waits = self.core.clock.tick - data.wait_from < budget
        if waits and gate is not None:
            gate.holds_back(0 if hold is None else hold.number, pages * self.core.config.page_size)
        return waits

    def _is_gated(self, hold: Machine | None) -> bool:
        """Whether what is waited for comes from the store, and there is a gate before that."""
        core = self.core
        if hold is None or hold.state is not HoldState.PARKED or not core.gate.is_on:
            return core.gate.is_on
        return not brought.is_local(core.stocks, hold.data, core.live.full_match(hold.data.chain, hold.data.last))

    def _wait_budget(self, pages: int) -> int:
        """Ticks that one attempt may be held back: the three policies are three numbers."""
        limits, config = self.core.limits, self.core.config
        match config.prefetch_policy:
            case PrefetchPolicy.BEST_EFFORT:
                return 0
            case PrefetchPolicy.TIMEOUT:
                return min(limits.wait_cap_ticks, limits.wait_base_ticks + int(limits.wait_per_page_ticks * pages))
            case PrefetchPolicy.WAIT_COMPLETE:
                return config.wait_complete_ticks

    def _open(self, m: Machine, budget: int) -> Plan:
        core, data = self.core, m.data
        live = self.looks.joint(m)
        promised = core.holds[data.hold].data.last if m.state is RequestState.ANCHOR_LOCKED else live
        extend = min(budget, data.prompt_tokens - promised * core.config.page_size)
        self._serial += 1
        plan = Plan(data.handle, self._serial, live, promised, extend)
        core.visits[m.number] = plan
        return plan

    # Commit

    def commit(self, m: Machine, plan: Plan) -> Admission:
        """End the visit: admitted, or why not."""
        self._close(m, plan)
        if m.state is RequestState.ANCHOR_LOCKED:
            return self._commit_claim(m, plan)
        core, data = self.core, m.data
        live = self.looks.joint(m)
        if not self.admission.fits(data, live):
            return Admission(data.handle, AdmissionOutcome.NO_ROOM)
        core.steps.request.admit(m, live)
        core.settle()
        if m.state is not RequestState.COMMITTED:
            return Admission(data.handle, AdmissionOutcome.SHRUNK)
        return self._admitted(m, plan)

    def _commit_claim(self, m: Machine, plan: Plan) -> Admission:
        core, data = self.core, m.data
        hold = core.holds[data.hold]
        delivery = self._delivery(m, hold.data, plan)
        outcome = core.steps.request.commit(m, delivery)
        core.settle()
        if outcome is Commit.PARTIAL:
            raise PartialDelivery(
                f"{data.handle}: the hold promised pages up to {delivery.promised} and delivered up to "
                f"{delivery.delivered}; everything was rolled back, and the request will be computed without the store"
            )
        if m.state is not RequestState.COMMITTED:
            return Admission(data.handle, REFUSALS[Commit(outcome)])
        return self._admitted(m, plan)

    def would_deliver(self, m: Machine, plan: Plan) -> bool:
        """What `commit` would decide, in thought: admitted, with all that was promised."""
        core, data = self.core, m.data
        self._must_be_open(m, plan)
        if m.state is RequestState.ANCHOR_LOCKED:
            delivery = self._delivery(m, core.holds[data.hold].data, plan)
            return self.admission.commit(m, delivery) in (Commit.DELIVERED, Commit.MORE)
        live = self.looks.joint(m)
        if m.state is RequestState.COVERED and self.admission.still_covered(m, live) is StillCovered.SHRUNK:
            return False
        return live >= plan.promised_pages and self.admission.fits(data, live)

    def _delivery(self, m: Machine, hold: HoldData, plan: Plan) -> Delivery:
        """What the hold brings now. If whoever is asked for it raises, the visit is as open as before."""
        live = self.looks.full(m)
        joint = self.looks.joint(m) if self.core.stocks.gates else live
        try:
            delivered = whole("deliver", "the page reached", self.deliver(hold, joint, plan.promised_pages))
        except Exception:
            self.core.visits[m.number] = plan
            raise
        return Delivery(live, joint, plan.promised_pages, delivered)

    def _admitted(self, m: Machine, plan: Plan) -> Admission:
        data = m.data
        hit = data.n_tokens
        return Admission(
            data.handle,
            AdmissionOutcome.ADMITTED,
            hit_tokens=hit,
            device_hit_tokens=hit - data.store_hit_tokens,
            store_hit_tokens=data.store_hit_tokens,
            extend_tokens=min(plan.extend_tokens, data.prompt_tokens - hit),
            slots=tuple(data.slots),
        )

    def release(self, m: Machine, plan: Plan) -> None:
        """End the visit without a commit."""
        self._close(m, plan)
        if m.state is RequestState.ANCHOR_LOCKED:
            self.core.steps.request.release(m)
            self.core.settle()

    def _close(self, m: Machine, plan: Plan) -> None:
        self._must_be_open(m, plan)
        del self.core.visits[m.number]

    def _must_be_open(self, m: Machine, plan: Plan) -> None:
        if self.core.visits.get(m.number) != plan:
            raise Misuse(
                f"{plan.handle}: this plan is not open; a plan is good for one commit or release, in its own pass"
            )
