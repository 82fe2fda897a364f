"""Another lifecycle on the same framework: a visitor passes a turnstile, or does not.

Declare, check, bind, step, draw, verify: every part of it is here, in that order. `docs/machines-howto.md` explains
each. Run it with a folder to write to: `python examples/turnstile.py out`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from stagehold.machines import HandleKey, Journal, Machine, Refused, bind, declaration_hash, require, step_bound
from stagehold.machines.audit import verify
from stagehold.machines.diagram import mermaid
from stagehold.machines.logs import AuditLog
from stagehold.machines.oracle import compare
from stagehold.specs.declare import ANY, Deadline, Decision, Declared, Kind, Life, MachineSpec, row, state

# Declare: the states, what each decision may answer, the limits, and the rows.


class Passage(IntEnum):
    """Where a visitor stands."""

    OUTSIDE = 0
    PAID = 1
    INSIDE = 2
    TURNED_AWAY = 3


class Coin(IntEnum):
    """What became of a coin."""

    GOOD = 0
    BAD = 1
    BAD_AGAIN = 2


class GateLimits(Declared):
    """Every bound by name; a declaration can name no other."""

    bad_coins: int = Field(default=2, ge=0)
    """Bad coins of one visitor that are still handed back."""

    walk_ticks: int = Field(default=3, ge=1)
    """How long a paid gate stays open."""


S = Passage

PASSAGE = MachineSpec(
    name="passage",
    one_per="visitor",
    doc="Pays, and walks through in time.",
    life=Life.FINITE,
    initial=S.OUTSIDE,
    counters={"bad": "bad_coins"},
    states=(
        state(S.OUTSIDE, Kind.RESTING, "has paid nothing"),
        state(S.PAID, Kind.WAITING, "the gate is open", "fare", deadline=("walk_ticks", "timeout")),
        state(S.INSIDE, Kind.TERMINAL, "walked through"),
        state(S.TURNED_AWAY, Kind.TERMINAL, "did not"),
    ),
    decisions=(Decision(state=S.OUTSIDE, event="insert", name="coin", outcomes=Coin),),
    rows=(
        row(S.OUTSIDE, "insert", Coin.GOOD, S.PAID, "the fare is kept apart", effect="keep", takes="fare"),
        row(S.OUTSIDE, "insert", Coin.BAD, S.OUTSIDE, "handed back", counts="bad"),
        row(S.OUTSIDE, "insert", Coin.BAD_AGAIN, S.TURNED_AWAY, "one too many"),
        row(S.PAID, "walk", None, S.INSIDE, "the fare is earned", effect="bank", releases="fare"),
        row(S.PAID, "timeout", None, S.TURNED_AWAY, "changed their mind", effect="refund", releases="fare"),
        row(ANY, "abort", None, S.TURNED_AWAY, "closing time", effect="refund", releases=ANY),
    ),
)  # fmt: skip

MACHINES = (PASSAGE,)
LIMITS = GateLimits()

# Check: a declaration that could go wrong is refused here, with a sentence that says what to write instead.

require(PASSAGE, MACHINES, limits=GateLimits)

# Bind: the methods that the rows name. Decisions look and answer; effects do, and may raise only before they do.


@dataclass
class Gate:
    """The rules of one gate, its till, and a clock that counts ticks."""

    tick: int = 0
    fares: set[int] = field(default_factory=set)
    earned: int = 0
    timers: list[tuple[int, Machine, Deadline]] = field(default_factory=list)

    def coin(self, m: Machine, coin: str) -> Coin:
        """The decision on a coin."""
        if coin == "good":
            return Coin.GOOD
        return Coin.BAD if m.bad < LIMITS.bad_coins else Coin.BAD_AGAIN

    def keep(self, m: Machine, _coin: Any) -> None:
        """Hold the fare of this visitor."""
        self.fares.add(m.number)

    def bank(self, m: Machine, _arg: Any) -> None:
        """The fare is ours."""
        self.fares.remove(m.number)
        self.earned += 1

    def refund(self, m: Machine, _arg: Any) -> None:
        """Give back what there is to give back."""
        self.fares.discard(m.number)

    def arm(self, m: Machine, deadline: Deadline) -> None:
        """A waiting state was entered: its clock starts."""
        self.timers.append((self.tick + getattr(LIMITS, deadline.limit), m, deadline))


def run(log: Path) -> Gate:
    """Step: four visitors in six ticks, each tick a block of the audit log."""
    gate = Gate()
    with AuditLog(log, MACHINES) as audit:
        journal = Journal(MACHINES, sink=audit.block)
        passage = bind(PASSAGE, decisions=gate, effects=gate, journal=journal, arm=gate.arm, strict=True)
        ada, ben, cyd, dot = (passage.birth(None, HandleKey(name, 0, b"gate")) for name in ("ada", "ben", "cyd", "dot"))
        passage.insert(ada, "good")
        passage.insert(ben, "good")
        for _ in range(3):
            passage.insert(cyd, "button")
        passage.walk(ada)
        try:
            passage.walk(dot)
        except Refused as refused:
            print(f"refused: {refused}")
        for gate.tick in range(1, 7):
            for due, m, deadline in gate.timers:
                if due == gate.tick and m.state is S.PAID:
                    passage.fire(m, deadline.event)
            journal.close_block(gate.tick)
        passage.abort(dot)
        journal.close_block(gate.tick + 1)
        for name, m in (("ada", ada), ("ben", ben), ("cyd", cyd), ("dot", dot)):
            print(f"{name}: {m.state.name.lower()}, {m.bad} bad coins")
    return gate


def main(folder: Path) -> None:
    """Run the gate, and show what can be known of it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    bound = step_bound(PASSAGE, LIMITS)
    assert bound is not None, "a finite machine has one"
    print(f"a visitor takes at most {bound.steps} steps")
    gate = run(folder / "gate.jsonl")
    assert not gate.fares, "nobody who has left owns anything"
    print(f"earned: {gate.earned}")

    # Draw: the same rows as a picture, for a review or a wiki.
    picture = folder / "passage.mmd"
    picture.write_text(mermaid(PASSAGE, declaration_hash(MACHINES).hex()))
    print(f"drawn: {picture.name}, {len(PASSAGE.rows)} rows")

    # Verify: the log against the rows, and the compiled steps against `transitions`.
    found = verify(folder / "gate.jsonl", machines=MACHINES)
    print(f"log: {found.records} steps of {found.instances} visitors, {'sound' if found.sound else found.fault}")
    same = compare(PASSAGE)
    print(f"oracle: {same.cells} cells, {len(same.differences)} differences")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out"))
