"""Claims of *request* on holds: a visit's look at them, how they end, and the exits that give them back.

Exactly one function ends a claim (`end_claim`), whatever the reason; the last claim that leaves sends the hold
`drop`, and a visitor that leaves gives the visit back.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagehold.lifecycle.core import Core
from stagehold.machines import Machine
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Evaluate, HoldEnd, Loss
from stagehold.specs.request import RequestState


@dataclass(frozen=True, slots=True)
class Look:
    """What a visit sees of the live tree: pages of the FULL and of the joint match.

    A policy may take pages for granted; then `resident` says how many of `live` there are.
    """

    live: int
    joint: int
    resident: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a hold ended for its claimants, and where their tokens went."""

    end: HoldEnd
    loss: Loss


@dataclass(frozen=True, slots=True)
class Struck:
    """What a claim was: the hold's number and the tokens that were open."""

    hold: int
    tokens: int


class ClaimRules:
    """Decisions `evaluate` and `hold_ended`; effects that end claims."""

    def __init__(self, core: Core) -> None:
        self.core = core

    # Decisions

    def evaluate(self, m: Machine, look: Look) -> Evaluate:
        """The caller has cut a fetch that will not be waited for, and skips what is still worth waiting for."""
        hold = self.core.holds[m.data.hold]
        if look.joint >= hold.data.last:
            return Evaluate.COVERED
        if look.live < hold.data.anchor:
            return Evaluate.LOST
        return Evaluate.LOCKED if hold.state is HoldState.READY else Evaluate.UNWAITED

    def hold_ended(self, _m: Machine, ended: Ended) -> HoldEnd:
        """What the hold says of itself."""
        return ended.end

    # Effects

    def claim_ended(self, m: Machine, ended: Ended) -> int:
        """The hold is over for everybody; its tokens go where it says."""
        if ended.end in (HoldEnd.SPLICED, HoldEnd.COVERED):
            self._note_cover(m)
        return self.end_claim(m, ended.loss)

    def _note_cover(self, m: Machine) -> None:
        """The tree has all that the hold would bring; what it loses before the admission is worth another launch."""
        m.data.covered_end = self.core.holds[m.data.hold].data.last

    def claim_ended_lost(self, m: Machine, ended: Ended) -> int:
        """The same, and the request decides at once whether a launch is left."""
        self.core.post(self.core.steps.request.resolve, m)
        return self.end_claim(m, ended.loss)

    def claim_failed(self, m: Machine, ended: Ended) -> int:
        """The same, and what was known of the store is forgotten."""
        m.data.known_end = 0
        return self.end_claim(m, ended.loss)

    def leave_lost(self, m: Machine, look: Look) -> int:
        """A visit saw that the anchor is gone: released together with the other claimants."""
        self._visit_siblings(m, look)
        self.core.post(self.core.steps.request.resolve, m)
        return self.end_claim(m, Loss.LOST)

    def leave_covered(self, m: Machine, look: Look) -> int:
        """A visit saw that the tree holds the span: released together with the other claimants."""
        self._visit_siblings(m, look)
        self._note_cover(m)
        return self.end_claim(m, Loss.COVERED)

    def leave_unwaited(self, m: Machine, _look: Look) -> int:
        """The wait budget is spent; the siblings may go on waiting."""
        return self.end_claim(m, Loss.UNWAITED)

    def _visit_siblings(self, m: Machine, look: Look) -> None:
        for number in self.core.holds[m.data.hold].data.claims:
            sibling = self.core.requests[number]
            if sibling is not m and sibling.state is RequestState.STAGED:
                self.core.post(self._evaluate_sibling, sibling, look)

    def _evaluate_sibling(self, m: Machine, look: Look) -> None:
        if m.state is RequestState.STAGED:
            self.core.steps.request.evaluate(m, look)

    def end_claim(self, m: Machine, reason: Loss) -> int:
        """The one way for a claim to end without a splice; returns the record's detail."""
        struck = self.strike(m)
        hold = self.core.holds[struck.hold]
        was_visitor = hold.data.visitor == m.number
        if was_visitor:
            hold.data.visitor = 0
        if hold.state in (HoldState.PARKED, HoldState.FETCHING, HoldState.READY, HoldState.PLANNED):
            self._give_hold_back(hold, was_visitor=was_visitor)
        return self.core.ledger.lose(struck.tokens, reason)

    def _give_hold_back(self, hold: Machine, *, was_visitor: bool) -> None:
        if not hold.data.claims:
            self.core.close_span(hold.number)
            self.core.post(self.core.steps.hold.drop, hold)
        elif was_visitor:
            self.core.post(self.core.steps.hold.unplan, hold)

    def strike(self, m: Machine) -> Struck:
        """Take the request off its hold's list; the books of tokens are the caller's."""
        core, data = self.core, m.data
        struck = Struck(data.hold, data.claim_tokens)
        core.holds[data.hold].data.claims.remove(m.number)
        core.ledger.give("claim", m.number)
        data.hold = data.claim_tokens = 0
        return struck
