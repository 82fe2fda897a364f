"""Admission of *request*: the visit that ends in `commit`, and the ends of a committed request.

What is charged is what was delivered. A committed request is promised every page that its prompt and answer can
fill; `Core.room` counts the promise, so that no other admission, pin or copy can take it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stagehold.lifecycle import splicing
from stagehold.lifecycle.claims import ClaimRules, Look
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import HoldData, RequestData
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine
from stagehold.specs.outcomes import Commit, Loss, StillCovered


@dataclass(frozen=True, slots=True)
class Delivery:
    """One commit: pages live now, FULL and joint, pages promised by the plan, and those that the hold can deliver."""

    live: int
    joint: int
    promised: int
    delivered: int


class AdmissionRules:
    """Decisions `still_covered` and `commit`; effects from `plan` to `finish`, `retract` and `abort`."""

    def __init__(self, core: Core, retries: RetryRules, launches: LaunchRules, claims: ClaimRules) -> None:
        self.core = core
        self.retries = retries
        self.launches = launches
        self.claims = claims

    # Room

    def pages_in_all(self, data: RequestData) -> int:
        """Pages that prompt and answer can fill: ceil(tokens / page size)."""
        return -(-(data.prompt_tokens + data.max_new_tokens) // self.core.config.page_size)

    def fits(self, data: RequestData, hit: int) -> bool:
        """Whether the request can be promised all that it may take behind a hit of `hit` pages, which it locks."""
        return self._has_room(data, hit, hit)

    def _fits_spliced(self, data: RequestData, hold: HoldData, live: int) -> bool:
        """The same with the hold spliced, for every pool that the splice touches."""
        return self._has_room(data, min(live, hold.last), hold.last, hold)

    def _has_room(self, data: RequestData, live: int, hit: int, hold: HoldData | None = None) -> bool:
        """Room to lock `live` pages and promise what is behind them, where the hit will be `hit` pages."""
        core = self.core
        cost = core.live.protect_cost(data.chain, live)
        if self.pages_in_all(data) - live + cost > core.room():
            return False
        for stock in core.stocks.others:
            part = core.stocks.part(stock.name)
            need = self._reservation(stock, data, hit) + core.window_cost(stock, data.chain, live)
            if hold is not None:
                need += part.units(splicing.lacking(core, hold, stock.name))
            if not part.fits(need, core.room_of(stock)):
                return False
        return True

    def _reservation(self, stock: Stock, data: RequestData, hit: int) -> int:
        """Slots of another component that a request behind `hit` pages may newly occupy, at its peak."""
        config = self.core.config
        prompt = -(-data.prompt_tokens // config.page_size)
        new = self.pages_in_all(data) - prompt
        return self.core.stocks.part(stock.name).reservation(max(0, prompt - hit), new, config.chunk_pages)

    # Decisions

    def still_covered(self, m: Machine, live: int) -> StillCovered:
        """SHRUNK if the tree lacks what it had, or the store is known to have, and a launch is left for that."""
        core, data = self.core, m.data
        missing = max(data.known_end, data.covered_end) - live
        if core.serves and missing >= core.config.threshold_pages and not self.launches.is_spent(m):
            return StillCovered.SHRUNK
        return StillCovered.COMMIT

    def commit(self, m: Machine, delivery: Delivery) -> Commit:
        """Delivered against promised, then room."""
        core, data = self.core, m.data
        if delivery.delivered == 0:
            return Commit.NOTHING if self.fits(data, delivery.joint) else Commit.UNFIT
        if delivery.delivered < delivery.promised:
            return Commit.PARTIAL
        if self._fits_spliced(data, core.holds[data.hold].data, delivery.live):
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
        data.lock = core.lock(data.chain, min(look.live, hold.data.last), whole=True)
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
            self.core.live.unlock(m.data.lock, forfeit=True)
        m.data.lock = None
        self.core.news += 1

    def splice(self, m: Machine, delivery: Delivery) -> int:
        """Make room, copy what the tree lacks, publish it, and move the lock to its end.

        What is joined may make more of the tree usable than the hold brought: the hit is what can be gone on from.
        """
        core, data = self.core, m.data
        hold = core.holds[data.hold]
        low = min(delivery.live, hold.data.last)
        self.move_lock(data, low, whole=True)
        splicing.join(core, hold.data, data.chain, low)
        self.move_lock(data, hold.data.last)
        hit = self._hit(data, hold.data.last, delivery.live)
        if hit > hold.data.last:
            self.move_lock(data, hit)
        struck = self.claims.strike(m)
        hold.data.visitor = 0
        # What lies before the claim was live, and could only not be gone on from: it was never asked for.
        loaded = max(0, hold.data.last - max(delivery.joint, hold.data.start)) * core.config.page_size
        self._take_slots(m, hit)
        data.store_hit_tokens = (hit - delivery.joint) * core.config.page_size
        core.gate.brings(data.handle, min(loaded, hold.data.fetched * core.config.page_size))
        hold.data.fetched = 0
        core.post(core.steps.hold.load, hold, delivery.live)
        return core.ledger.splice(loaded, struck.tokens - loaded)

    def _hit(self, data: RequestData, last: int, live: int) -> int:
        """Where the request begins: at the end of what was joined, or behind it where there is room for that, too."""
        core, hit = self.core, max(live, last)
        if core.stocks.gates:
            hit = core.live.joint_match(data.chain, data.hit_limit)
            assert hit >= last, f"boundary {last} was joined, and only {hit} can be gone on from"
        return hit if hit == last or self.fits(data, hit) else last

    def move_lock(self, data: RequestData, pages: int, *, whole: bool = False, runs: bool = False) -> None:
        """The request's lock now reaches `pages`; the new one is taken before the old one is given back.

        One that covered holes is dead where they have been filled: what it protected there never was. A request that
        `runs` has published what lies behind its hit itself, and may have computed more.
        """
        lock = self.core.lock(data.chain, pages, data if runs else None, whole=whole)
        self.core.live.unlock(data.lock, forfeit=True)
        data.lock = lock

    def admit_bare(self, m: Machine, delivery: Delivery) -> int:
        """Nothing was delivered: run with what the device holds, which a sibling may have made more since the plan."""
        detail = self.claims.end_claim(m, Loss.SHORT_DEVICE)
        self.move_lock(m.data, delivery.joint)
        self._take_slots(m, delivery.joint)
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
        self.retries.leave_retry(m)
        return self._admit(m, live)

    def admit_unanswered(self, m: Machine, live: int) -> int:
        """The same, and give up on the lookup."""
        self.launches.end_query(m)
        return self._admit(m, live)

    def _admit(self, m: Machine, live: int) -> int:
        core, data = self.core, m.data
        data.lock = core.lock(data.chain, live)
        core.ledger.take("lock", m.number, data.namespace)
        self._take_slots(m, live)
        return self._of_prompt(data, live)

    def _take_slots(self, m: Machine, hit: int) -> None:
        """Promise every page behind the hit; the hit itself is the tree's, under the request's lock."""
        core, data = self.core, m.data
        data.slots = list(core.tree.slots(data.chain, 0, hit))
        data.hit = data.published = data.passed = hit
        data.n_tokens = hit * core.config.page_size
        data.reserve = self.pages_in_all(data) - hit
        core.reserved += data.reserve
        core.committed += 1
        core.live.touch(data.chain, hit)
        core.ledger.take("slots", m.number, data.namespace, data.reserve)
        for stock in core.stocks.others:
            self._open_share(stock, data, hit)

    def _open_share(self, stock: Stock, data: RequestData, hit: int) -> None:
        """What the request has of another component: the tree's slots at the hit, and what it is promised."""
        core = self.core
        share = core.stocks.part(stock.name).share(hit, core.in_reach(stock, data.chain, hit))
        data.shares[stock.name] = share
        share.promise(self._reservation(stock, data, hit))
        share.grow(core.allocate(stock, share.wants(hit)))
        opening = share.opening()
        if opening and stock.name in core.bytes:
            core.bytes[stock.name].move(opening)
        self.recount_share(stock, data)

    def recount_share(self, stock: Stock, data: RequestData) -> None:
        """What it may still take has changed."""
        share = data.shares[stock.name]
        due = share.due(data.published)
        stock.reserved += due - share.reserve
        share.reserve = due

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
        for stock in core.stocks.others:
            share = data.shares[stock.name]
            stock.device.free(share.own())
            stock.reserved -= share.reserve
        data.shares = {}
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
        self.retries.leave_retry(m)
        return detail
