"""What a check says: the rule, the place, and a sentence that ends with what to write instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from stagehold.specs.declare import MachineSpec, Row, State


class Rule(StrEnum):
    """What is checked; the value is the name under which the lab may waive it."""

    NAMES = "names"
    LAYOUT = "layout"
    OUTCOMES = "outcomes"
    UNUSED = "unused"
    BALANCE = "balance"
    EFFECTS = "effects"
    BOOKS = "books"
    TERMINAL = "terminal"
    DEADLINE = "deadline"
    DELEGATE = "delegate"
    ABORT = "abort"
    KIND = "kind"
    IO = "io"
    REACHABLE = "reachable"
    ENDS = "ends"
    HOME = "home"
    CYCLE = "cycle"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a machine: `where` names row or state, `says` what is wrong and what to write."""

    rule: Rule
    machine: str
    where: str
    says: str

    def __str__(self) -> str:
        return f"{self.machine}: {self.where}: {self.says} [{self.rule}]"


class DeclarationError(ValueError):
    """A declaration that cannot be run; lists every problem, one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(["wrong declaration:", *(f"  {problem}" for problem in self.problems)]))


def at_row(row: Row) -> str:
    """`queued --issue[LOOKUP]--> lookup`."""
    source = row.source if isinstance(row.source, str) else row.source.name.lower()
    outcome = f"[{row.outcome.name}]" if row.outcome is not None else ""
    return f"row {source} --{row.event}{outcome}--> {row.target.name.lower()}"


def at_state(state: State) -> str:
    """`state queued`."""
    return f"state {state.name.name.lower()}"


def wrong_row(rule: Rule, spec: MachineSpec, row: Row, says: str) -> Problem:
    """A problem of one row."""
    return Problem(rule, spec.name, at_row(row), says)


def wrong_state(rule: Rule, spec: MachineSpec, state: State, says: str) -> Problem:
    """A problem of one state."""
    return Problem(rule, spec.name, at_state(state), says)


def listed(resources: Iterable[str]) -> str:
    """`io, staging`, sorted; `nothing` for none."""
    return ", ".join(sorted(resources)) or "nothing"


def kept(state: State) -> Counter[str]:
    """What an instance owns in `state`, each resource with its count."""
    return Counter(state.owns)
