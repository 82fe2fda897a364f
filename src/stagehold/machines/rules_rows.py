"""What must hold of names, of outcomes, and of each row by itself.

Owns these rules only; `checks` runs them. `names` comes first: the others rely on every name being known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from keyword import iskeyword

from stagehold.machines.declared import rows_of
from stagehold.machines.findings import Problem, Rule, kept, listed, wrong_row, wrong_state
from stagehold.machines.records import REFUSED_ROW
from stagehold.specs.declare import ANY, Books, Decision, Declared, Life, MachineSpec, Row

CLAIM = "claim"
"""The resource whose rows carry the token ledger."""


def names(spec: MachineSpec, limits: type[Declared]) -> Iterator[Problem]:
    """Every state, outcome, counter and limit that is named exists; limits are fields or properties of `limits`."""
    declared = {id(state.name) for state in spec.states}
    for row in spec.rows:
        ends = [row.target] if row.source == ANY else [row.source, row.target]
        for end in ends:
            if id(end) not in declared:
                yield wrong_row(Rule.NAMES, spec, row, f"{end!r} is not declared; add state({end!r}, ...) to states")
        if row.counts is not None and row.counts not in spec.counters:
            says = f"counter {row.counts!r} is not declared; add it to counters with the limit that bounds it"
            yield wrong_row(Rule.NAMES, spec, row, says)
        if row.clock is not None and not _is_limit(limits, row.clock):
            says = f"clock {row.clock!r} is no limit; add it to {limits.__name__}"
            yield wrong_row(Rule.NAMES, spec, row, says)
    for end in (spec.initial, *spec.births):
        if id(end) not in declared:
            says = f"birth state {end!r} is not declared; add state({end!r}, ...) to states"
            yield Problem(Rule.NAMES, spec.name, "births", says)
    yield from _limit_names(spec, limits)


def _limit_names(spec: MachineSpec, limits: type[Declared]) -> Iterator[Problem]:
    for state in spec.states:
        if state.deadline is not None and not _is_limit(limits, state.deadline.limit):
            says = f"deadline {state.deadline.limit!r} is no limit; add it to {limits.__name__}, with its reason"
            yield wrong_state(Rule.NAMES, spec, state, says)
    for counter, limit in spec.counters.items():
        if not _is_limit(limits, limit):
            says = f"{limit!r} is no limit; add it to {limits.__name__}, with its reason"
            yield Problem(Rule.NAMES, spec.name, f"counter {counter}", says)


def _is_limit(limits: type[Declared], name: str) -> bool:
    return name in limits.model_fields or isinstance(getattr(limits, name, None), property)


def layout(spec: MachineSpec) -> Iterator[Problem]:
    """Numbers that the audit layout relies on: members count from 0, and rows fit a byte."""
    enums = [type(spec.initial), *(decision.outcomes for decision in spec.decisions)]
    for enum in dict.fromkeys(enums):
        if [int(member) for member in enum] != list(range(len(enum))):
            says = f"members of {enum.__name__} are not 0, 1, 2, ... in order; renumber them"
            yield Problem(Rule.LAYOUT, spec.name, f"enum {enum.__name__}", says)
    if [state.name for state in spec.states] != list(type(spec.initial)):
        says = f"declare every member of {type(spec.initial).__name__} exactly once, in its order"
        yield Problem(Rule.LAYOUT, spec.name, "states", says)
    if len(rows_of(spec)) > REFUSED_ROW:
        says = f"{len(rows_of(spec))} rows, but a record has room for {REFUSED_ROW}; split the machine"
        yield Problem(Rule.LAYOUT, spec.name, "rows", says)


def outcomes(spec: MachineSpec) -> Iterator[Problem]:
    """A (state, event) pair has one row, or a decision and exactly one row for each of its outcomes."""
    pairs: dict[tuple[IntEnum | str, str], list[Row]] = {}
    for row in rows_of(spec):
        pairs.setdefault((row.source, row.event), []).append(row)
    decided: dict[tuple[IntEnum | str, str], Decision] = {
        (decision.state, decision.event): decision for decision in spec.decisions
    }
    if len(decided) != len(spec.decisions):
        yield Problem(Rule.OUTCOMES, spec.name, "decisions", "two decisions for one state and event; keep one")
    for pair, decision in decided.items():
        found = Counter(row.outcome for row in pairs.get(pair, []))
        where = f"decision {decision.name} (state {decision.state.name.lower()}, event {decision.event})"
        for member in decision.outcomes:
            if found[member] != 1:
                named = f'S.{decision.state.name}, "{decision.event}", {decision.outcomes.__name__}.{member.name}'
                says = f"{found[member]} rows for outcome {member.name}; write exactly one: row({named}, ...)"
                yield Problem(Rule.OUTCOMES, spec.name, where, says)
    for pair, rows in pairs.items():
        yield from _undecided(spec, rows, decided[pair].outcomes if pair in decided else None)


def _undecided(spec: MachineSpec, rows: list[Row], enum: type[IntEnum] | None) -> Iterator[Problem]:
    """Rows of one pair that do not fit its decision, or its lack of one."""
    for row in rows:
        if enum is None and row.outcome is not None:
            says = f"outcome {row.outcome!r} without a decision; declare Decision(event={row.event!r}, ...)"
            yield wrong_row(Rule.OUTCOMES, spec, row, says)
        if enum is not None and type(row.outcome) is not enum:
            says = f"its decision answers with {enum.__name__}; write one of {', '.join(enum.__members__)}"
            yield wrong_row(Rule.OUTCOMES, spec, row, says)
    if enum is None and len(rows) > 1:
        says = f"{len(rows)} rows for one state and event; keep one, or declare a decision that tells them apart"
        yield wrong_row(Rule.OUTCOMES, spec, rows[0], says)


def unused(spec: MachineSpec) -> Iterator[Problem]:
    """Nothing is declared that no row uses, and nothing stands there without its reason."""
    counted = {row.counts for row in spec.rows}
    for counter in spec.counters:
        if counter not in counted:
            says = "no row moves it; write counts=... on the rows it should bound, or remove it"
            yield Problem(Rule.UNUSED, spec.name, f"counter {counter}", says)
    for row in spec.rows:
        if not row.why.strip():
            yield wrong_row(Rule.UNUSED, spec, row, "has no reason; write why it is there")
    for state in spec.states:
        if not state.doc.strip():
            yield wrong_state(Rule.UNUSED, spec, state, "has no meaning; write one line of doc")


def balance(spec: MachineSpec) -> Iterator[Problem]:
    """owns(source) + takes - releases = owns(target), and nothing is released that is not owned."""
    owned = {state.name: kept(state) for state in spec.states}
    for row in rows_of(spec):
        assert isinstance(row.source, IntEnum)  # `rows_of` has written out every `ANY`
        held, given = owned[row.source] + Counter(row.takes), Counter(row.releases)
        if given - held:
            says = f"releases {listed(given - held)}, which it does not own; take it off releases"
            yield wrong_row(Rule.BALANCE, spec, row, says)
            continue
        left, wanted = held - given, owned[row.target]
        if left - wanted:
            kept_on = listed(left - wanted)
            says = f"keeps {kept_on}, which {row.target.name.lower()} does not own; write it in releases"
            yield wrong_row(Rule.BALANCE, spec, row, says)
        if wanted - left:
            says = f"lacks {listed(wanted - left)}, which {row.target.name.lower()} owns; write it in takes"
            yield wrong_row(Rule.BALANCE, spec, row, says)
    if owned[spec.initial]:
        says = f"is the initial state but owns {listed(owned[spec.initial])}; take it on the first row instead"
        yield wrong_state(Rule.BALANCE, spec, spec.state(spec.initial), says)


def effects(spec: MachineSpec) -> Iterator[Problem]:
    """Names are methods that can be told apart, and what a finite machine moves is moved by an effect."""
    decided = {decision.name for decision in spec.decisions}
    for decision in spec.decisions:
        if not _is_method(decision.name):
            says = f"{decision.name!r} cannot be a method; write a lower-case Python name"
            yield Problem(Rule.EFFECTS, spec.name, f"decision {decision.name}", says)
    for event in spec.events():
        if not _is_method(event):
            says = f"{event!r} cannot be a method; write a lower-case Python name"
            yield Problem(Rule.EFFECTS, spec.name, f"event {event}", says)
    for row in spec.rows:
        if row.effect is not None and not _is_method(row.effect):
            says = f"effect {row.effect!r} cannot be a method; write a lower-case Python name"
            yield wrong_row(Rule.EFFECTS, spec, row, says)
        if row.effect in decided:
            says = f"effect {row.effect!r} is a decision's name, too; decisions look, effects do: rename one"
            yield wrong_row(Rule.EFFECTS, spec, row, says)
        if spec.life is Life.FINITE and (row.takes or row.releases) and row.effect is None:
            says = f"moves {listed({*row.takes, *row.releases})}, but nothing does it; name the effect"
            yield wrong_row(Rule.EFFECTS, spec, row, says)


def _is_method(name: str) -> bool:
    return name.isidentifier() and name == name.lower() and not name.startswith("_") and not iskeyword(name)


def books(spec: MachineSpec) -> Iterator[Problem]:
    """Tokens enter the ledger where a claim is taken and leave it where the claim ends."""
    for row in spec.rows:
        if row.books is not Books.NONE and row.effect is None:
            says = f"books {row.books.value}, but no effect gives the number; name the effect that returns it"
            yield wrong_row(Rule.BOOKS, spec, row, says)
        if CLAIM in row.takes and row.books is not Books.QUERIED:
            yield wrong_row(Rule.BOOKS, spec, row, "takes a claim without counting it; write books=Books.QUERIED")
        if CLAIM in row.releases and row.books not in (Books.SPLICED, Books.LOSS):
            says = "ends a claim without saying where its tokens went; write books=Books.LOSS or Books.SPLICED"
            yield wrong_row(Rule.BOOKS, spec, row, says)
