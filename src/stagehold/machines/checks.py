"""Whether a declaration can be run: every rule, in order, each problem with what to write instead.

Owns the list of rules. It runs once per declaration, at import of `stagehold.machines`, and steps nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stagehold.machines import rules_paths, rules_rows, rules_states
from stagehold.machines.declared import MACHINES
from stagehold.machines.findings import DeclarationError, Problem, Rule
from stagehold.specs.declare import Declared, MachineSpec
from stagehold.specs.limits import Limits


def check(
    spec: MachineSpec, machines: Sequence[MachineSpec] = MACHINES, *, limits: type[Declared] = Limits
) -> list[Problem]:
    """Every problem of `spec`; `machines` are those that its states may delegate to, `limits` names what bounds it.

    Wrong names are reported alone, since nothing else can be said before they are mended.
    """
    problems = list(rules_rows.names(spec, limits))
    if problems:
        return problems
    for rule in (rules_rows.layout, rules_rows.outcomes, rules_rows.unused, rules_rows.balance):
        problems += rule(spec)
    for rule in (rules_rows.effects, rules_rows.books, rules_states.terminal, rules_states.deadline):
        problems += rule(spec)
    for rule in (rules_states.abort, rules_states.kind, rules_states.io, rules_paths.reachable):
        problems += rule(spec)
    for rule in (rules_paths.ends, rules_paths.home, rules_paths.cycle):
        problems += rule(spec)
    problems += rules_states.delegate(spec, machines)
    problems += rules_paths.clock(spec, machines)
    return problems


def require(
    spec: MachineSpec,
    machines: Sequence[MachineSpec] = MACHINES,
    *,
    limits: type[Declared] = Limits,
    waive: Collection[Rule | str] = (),
) -> None:
    """Raise DeclarationError unless `spec` passes; `waive` names the rules that the lab does without."""
    unknown = set(map(str, waive)) - set(map(str, Rule))
    if unknown:
        raise ValueError(f"no such rule: {', '.join(sorted(unknown))}; there are: {', '.join(Rule)}")
    problems = [problem for problem in check(spec, machines, limits=limits) if problem.rule not in waive]
    if problems:
        raise DeclarationError(problems)
