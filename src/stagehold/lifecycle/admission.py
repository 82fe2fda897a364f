"""Admission of *request*: the visit that ends in `commit`, and the ends of a committed request.

What is charged is what was delivered. A committed request is promised every page that its prompt and answer can
fill; `Core.room` counts the promise, so that no other admission, pin or copy can take it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stagehold.lifecycle.claims import ClaimRules, Look
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import HoldData, RequestData
from stagehold.lifecycle.launch import LaunchRules
from stagehold.machines import Machine
from stagehold.specs.outcomes import Commit, Loss, StillCovered


@dataclass(frozen=True, slots=True)
class Delivery:
    """One commit: pages live now, pages promised by the plan, and pages that the hold can deliver (its end)."""

    live: int
    promised: int
    delivered: int


class AdmissionRules:
    """Decisions `still_covered` and `commit`; effects from `plan` to `finish`, `retract` and `abort`."""

    def __init__(self, core: Core, launches: LaunchRules, claims: ClaimRules) -> None:
        self.core = core
        self.launches = launches
        self.claims = claims

    # Room

    def pages_in_all(self, data: RequestData) -> int:
        """Pages that prompt and answer can fill: ceil(tokens / page size)."""
        return -(-(data.prompt_tokens + data.max_new_tokens) // self.core.config.page_size)

    def fits(self, data: RequestData, live: int) -> bool:
        """Whether the request can be promised all of its pages behind `live` protected ones."""
        cost = self.core.live.protect_cost(data.chain, live)
        return self.pages_in_all(data) - live + cost <= self.core.room()

    # Decisions

    def still_covered(self, m: Machine, live: int) -> StillCovered:
        """SHRUNK if the live tree no longer reaches the known end, a fetch is worth it, and a launch is left."""
        core, data = self.core, m.data
        missing = data.known_end - live
        if core.attached and missing >= core.config.threshold_pages and not self.launches.is_spent(m):
            return StillCovered.SHRUNK
        return StillCovered.COMMIT

    def commit(self, m: Machine, delivery: Delivery) -> Commit:
        """Delivered against promised, then room."""
        core, data = self.core, m.data
        if delivery.delivered == 0:
            return Commit.NOTHING if self.fits(data, delivery.live) else Commit.UNFIT
        if delivery.delivered < delivery.promised:
            return Commit.PARTIAL
        if self.fits(data, delivery.live):
            return Commit.DELIVERED if delivery.delivered == delivery.promised else Commit.MORE
        if core.committed:
            return Commit.NO_ROOM
        spent = m.defers >= core.limits.max_staged_admission_defers
        return Commit.DEFER_CAP if spent else Commit.DEFERRED

    # Effects of a visit to a claimant

    def plan(self, m: Machine, look: Look) -> int:
        """Lock the live path and open the visit of the hold; the record says how much of the prompt is live."""
        core, data = self.core, m.data
        hold = core.holds[data.hold]
        data.lock = core.live.lock(data.chain, look.live)
        core.ledger.take("lock", m.number, data.namespace)
        hold.data.visitor = m.number
        core.post(core.steps.hold.plan, hold)
        return self._of_prompt(data, look.live)

    def _of_prompt(self, data: RequestData, pages: int) -> int:
        """For a record: tokens of so many pages in the low half, those of the prompt in the high one."""
        return pages * self.core.config.page_size | data.prompt_tokens << 32

    def unlock(self, m: Machine, _arg: Any) -> int:
        """Give the lock back and leave the hold to its claimants; the record says how many tokens are put off."""
        hold = self.core.holds[m.data.hold]
        self._unlock(m)
        hold.data.visitor = 0
        self.core.post(self.core.steps.hold.unplan, hold)
        tokens: int = m.data.claim_tokens
        return tokens

    def _unlock(self, m: Machine) -> None:
        if self.core.ledger.give("lock", m.number):
            self.core.live.unlock(m.data.lock)
        m.data.lock = None
        self.core.news += 1

    def splice(self, m: Machine, delivery: Delivery) -> int:
        """Make room, copy the tail, publish it, and move the lock to its end."""
        core, data = self.core, m.data
        hold = core.holds[data.hold]
        end = max(delivery.live, hold.data.last)
        slots = core.allocate_device(end - delivery.live)
        self._publish_tail(hold.data, data, delivery.live, slots)
        struck = self.claims.strike(m)
        hold.data.visitor = 0
        loaded = (end - delivery.live) * core.config.page_size
        self._take_slots(m, end)
        data.store_hit_tokens = loaded
        core.post(core.steps.hold.load, hold, delivery.live)
        return core.ledger.splice(loaded, struck.tokens - loaded)

    def _publish_tail(self, hold: HoldData, data: RequestData, live: int, slots: list[int]) -> None:
        core = self.core
        if core.tensors is not None and slots:
            core.tensors.load(hold.staging[live - hold.start :], slots)
        shown = core.insert(data.chain, live, slots)
        assert shown == slots, "the tree shows other slots than were loaded"
        self.move_lock(data, live + len(slots))

    def move_lock(self, data: RequestData, pages: int) -> None:
        """The request's lock now reaches `pages`; the new one is taken before the old one is given back."""
        lock = self.core.live.lock(data.chain, pages)
        self.core.live.unlock(data.lock)
        data.lock = lock

    def admit_bare(self, m: Machine, delivery: Delivery) -> int:
        """Nothing was delivered: run with what the device holds, which a sibling may have made more since the plan."""
        detail = self.claims.end_claim(m, Loss.SHORT_DEVICE)
        self.move_lock(m.data, delivery.live)
        self._take_slots(m, delivery.live)
        return detail

    def give_back(self, m: Machine, _arg: Any) -> int:
        """Deferrals are spent, or nothing came and there is no room without it: lock and claim go."""
        self._unlock(m)
        return self.claims.end_claim(m, Loss.SHORT_DEVICE)

    def roll_back(self, m: Machine, _arg: Any) -> int:
        """Between nothing and promised: give everything back."""
        self._unlock(m)
        return self.claims.end_claim(m, Loss.PARTIAL)

    # Effects of admission without a claim

    def admit(self, m: Machine, live: int) -> int:
        """Lock what the device holds and promise the rest; the record says how much of the prompt is live."""
        self.launches.leave_retry(m)
        return self._admit(m, live)

    def admit_unanswered(self, m: Machine, live: int) -> int:
        """The same, and give up on the lookup."""
        self.launches.end_query(m)
        return self._admit(m, live)

    def _admit(self, m: Machine, live: int) -> int:
        core, data = self.core, m.data
        data.lock = core.live.lock(data.chain, live)
        core.ledger.take("lock", m.number, data.namespace)
        self._take_slots(m, live)
        return self._of_prompt(data, live)

    def _take_slots(self, m: Machine, hit: int) -> None:
        """Promise every page behind the hit; the hit itself is the tree's, under the request's lock."""
        core, data = self.core, m.data
        data.slots = list(core.tree.slots(data.chain, 0, hit))
        data.published = hit
        data.n_tokens = hit * core.config.page_size
        data.reserve = self.pages_in_all(data) - hit
        core.reserved += data.reserve
        core.committed += 1
        core.live.touch(data.chain, hit)
        core.ledger.take("slots", m.number, data.namespace, data.reserve)

    # Ends

    def finish(self, m: Machine, _arg: Any) -> None:
        """What was computed has been published; the rest goes back to the pool."""
        self._leave_device(m)

    def retract(self, m: Machine, _arg: Any) -> None:
        """The scheduler takes the slots back; what was published stays."""
        self._leave_device(m)

    def _leave_device(self, m: Machine) -> None:
        core, data = self.core, m.data
        self._unlock(m)
        if core.ledger.give("slots", m.number):
            core.device.free(data.slots[data.published :])
        core.reserved -= data.reserve
        core.committed -= 1
        data.slots, data.published, data.reserve = [], 0, 0

    def abort(self, m: Machine, _arg: Any) -> int:
        """Legal everywhere: give back whatever this state owns."""
        data = m.data
        detail = 0
        if data.query:
            self.launches.end_query(m)
        if data.reserve or ("slots", m.number) in self.core.ledger.entries:
            self._leave_device(m)
        elif data.lock is not None:
            self._unlock(m)
        if data.hold:
            detail = self.claims.end_claim(m, Loss.ABORTED)
        self.launches.leave_retry(m)
        return detail
