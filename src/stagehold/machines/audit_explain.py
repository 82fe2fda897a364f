"""Why a request was declined, retried, capped, deferred or recomputed, or what it reused: from its log alone.

Owns the walk through the log. What the records do not say (the limits' values, the store's name, the prompt of a
request that was never planned or admitted) is not guessed.
"""

from __future__ import annotations

from pathlib import Path

from stagehold.machines import audit_words, labels
from stagehold.machines.audit_causes import Attempt, Cause, Explanation, Moment, Verdict
from stagehold.machines.audit_check import legal
from stagehold.machines.audit_holds import LOOKS, hold_moment
from stagehold.machines.audit_request import TELLERS, Asker
from stagehold.machines.audit_scene import HoldView, Scene, Step
from stagehold.machines.declared import MACHINES, rows_of
from stagehold.machines.records import REFUSED_FLAG, Birth, Block, HandleKey
from stagehold.specs.declare import Books, MachineSpec
from stagehold.specs.outcomes import Loss
from stagehold.specs.request import REQUEST, RequestState

NOT_LOST = (Loss.COVERED, Loss.TRIMMED)
"""Ends of tokens that the device had by then."""


def explain(path: Path, rid: str, machines: tuple[MachineSpec, ...] = MACHINES) -> Explanation:
    """Every attempt of request `rid` in the log at `path`, moment by moment.

    What happens between two ticks stands in the block of the second one. `BadLogError` where the log cannot be
    read, or was written by other declarations.
    """
    teller, first, last = Teller(rid, machines), -1, 0
    for block in (placed.block for batch in legal(path, machines) for placed in batch):
        first, last = block.tick if first < 0 else first, block.tick
        teller.take(block)
    return Explanation(rid, tuple(teller.attempts.values()), teller.scene.requests, max(0, first), last)


class Teller:
    """Follows a log block by block and tells what happens to the attempts of one request, or (None) of every one."""

    def __init__(self, rid: str | None, machines: tuple[MachineSpec, ...] = MACHINES) -> None:
        self.rid = rid
        self.machines = machines
        self.scene = Scene()
        self.attempts: dict[int, Attempt] = {}
        self._askers: dict[int, Asker] = {}
        self._rows = {
            machine << 8 | at: (spec.name, row)
            for machine, spec in enumerate(machines)
            for at, row in enumerate(rows_of(spec))
        }

    def take(self, block: Block) -> None:
        """The next block."""
        self.scene.begin()
        for birth in block.births:
            self._enter(block.tick, birth)
        for record in block.table().tolist():
            number, word, flags, detail = record
            if flags & REFUSED_FLAG:
                self._refused(block.tick, record)
            elif word in self._rows:
                self._follow(Step(block.tick, number, *self._rows[word], detail))

    def _enter(self, tick: int, birth: Birth) -> None:
        machine = self.machines[birth.machine].name
        self.scene.enter(tick, birth, machine)
        key = birth.key
        if machine == REQUEST.name and isinstance(key, HandleKey) and self.rid in (None, key.rid):
            state = labels.word(RequestState(birth.state))
            self.attempts[birth.number] = Attempt(birth.number, key.attempt, tick, state)
            self._askers[birth.number] = Asker(self.attempts[birth.number], tick)

    def forget(self, number: int) -> None:
        """Tell no more of an attempt; it must have ended, or it would be told of in part."""
        del self.attempts[number], self._askers[number]

    def launches(self, number: int) -> int:
        """How often an attempt has been launched."""
        return self._askers[number].launches

    def since(self, number: int) -> int:
        """The tick in which an attempt came to its state."""
        return self._askers[number].since

    def _follow(self, step: Step) -> None:
        asker = self._askers.get(step.number)
        if asker is not None:
            self._request(asker, step)
        self.scene.follow(step)
        hold = self.scene.holds.get(step.number)
        if hold is None or not self._askers:
            return
        for number in hold.claims:
            if number in self._askers:
                self._hold(self._askers[number], hold, step)

    def _refused(self, tick: int, record: audit_words.Record) -> None:
        asker, refused = self._askers.get(record[0]), audit_words.refusal(record, self.machines)
        if asker is not None and refused is not None:
            facts = {"state": refused[0], "event": refused[1]}
            asker.attempt.moments.append(Moment(tick, Verdict.REFUSED, Cause.REFUSED, facts))

    def _request(self, asker: Asker, step: Step) -> None:
        """A row of the request itself."""
        row, attempt = step.row, asker.attempt
        asker.launches += row.counts == "issues"
        asker.defers += row.counts == "defers"
        told = TELLERS[row.event](asker, self.scene, step)
        if told is not None:
            attempt.moments.append(Moment(step.tick, *told))
            if told[0] in (Verdict.DECLINED, Verdict.RETRIED, Verdict.CAPPED, Verdict.LOST):
                asker.why = told[1]
        if row.books is Books.LOSS and step.high < len(Loss) and Loss(step.high) not in NOT_LOST:
            attempt.lost += step.low
        if row.target is not row.source:
            asker.since, attempt.state = step.tick, labels.word(row.target)

    def _hold(self, asker: Asker, hold: HoldView, step: Step) -> None:
        """A row of the hold that the request has a claim on."""
        looked = LOOKS.get((step.row.event, step.row.outcome))
        if looked is not None:
            looks, since = asker.looks.get(looked, (0, step.tick))
            asker.looks[looked] = looks + 1, since
            return
        self._put_off(asker, hold, step)
        told = hold_moment(hold, step, self.scene)
        if told is not None:
            attempt, lost = asker.attempt, told[2].get("tokens", 0)
            attempt.moments.append(Moment(step.tick, *told))
            attempt.lost += lost
            asker.why = told[1] if lost else asker.why

    def _put_off(self, asker: Asker, hold: HoldView, step: Step) -> None:
        """The hold is not parked any more: why it was."""
        anchor = hold.first * self.scene.page_size
        for cause, (looks, since) in asker.looks.items():
            facts = {"hold": step.number, "looks": looks, "since": since, "anchor": anchor}
            asker.attempt.moments.append(Moment(step.tick, Verdict.WAITED, cause, facts))
        asker.looks.clear()
