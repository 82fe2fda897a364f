"""The seam for other policies: machines in place of ours, and functions in place of single decisions and effects.

Owns what may be replaced, and what must stay: states, events, decisions and their outcomes, and the place of every row,
so that a record means the same whichever policy wrote it. A policy says where a row leads, what it takes, releases and
counts, and which limits hold. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stagehold.machines import MACHINES, Machine, Rule, check, declaration_hash, require
from stagehold.machines.generate import wanted
from stagehold.specs.declare import MachineSpec

if TYPE_CHECKING:
    from stagehold.lifecycle.acts import Acts

Own = Callable[[Machine, Any], Any]
"""A decision or an effect of the engine: `own(m, arg)`."""

Function = Callable[["Acts", Own, Machine, Any], Any]
"""`function(acts, own, m, arg)`, in place of `own`: it answers with the same enum, or with the detail of the record."""

PACE = "request.pace"
"""Besides decisions and effects: what arms the retry of a request that has entered `retry`."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of an engine. `Machines()` are ours.

    `changed` machines stand in for ours of the same name. `functions` are named `machine.name`, after a decision or an
    effect, or `request.pace`. `waive` names the rules of `stagehold.machines.check` that the changed machines break;
    a rule that none of them breaks cannot be waived. DeclarationError and ValueError say what is wrong.
    """

    changed: tuple[MachineSpec, ...] = ()
    functions: Mapping[str, Function] = field(default_factory=dict)
    waive: tuple[Rule, ...] = ()
    specs: tuple[MachineSpec, ...] = field(init=False)
    """All seven, in the order of records."""

    def __post_init__(self) -> None:
        ours = {spec.name: spec for spec in MACHINES}
        for spec in self.changed:
            if spec.name not in ours:
                raise ValueError(f"no machine is called {spec.name!r}; there are: {', '.join(ours)}")
            _same_layout(ours[spec.name], spec)
        changed = {spec.name: spec for spec in self.changed}
        object.__setattr__(self, "specs", tuple(changed.get(name, spec) for name, spec in ours.items()))
        for spec in self.changed:
            require(spec, self.specs, waive=self.waive)
        broken = {problem.rule for spec in self.changed for problem in check(spec, self.specs)}
        kept = [rule for rule in self.waive if rule not in broken]
        if kept:
            raise ValueError(f"waives {', '.join(kept)}, and no changed machine breaks it; take it off waive")
        self._know_every_function()

    def _know_every_function(self) -> None:
        known = {f"{spec.name}.{name}" for spec in self.specs for names in wanted(spec) for name in names} | {PACE}
        for name in self.functions:
            if name not in known:
                near = sorted(one for one in known if one.startswith(name.partition(".")[0] + "."))
                raise ValueError(f"no decision or effect is called {name!r}; there are: {', '.join(near or known)}")

    @property
    def declaration(self) -> bytes:
        """What ties a log to these machines, 16 bytes."""
        return declaration_hash(self.specs)

    def of(self, name: str) -> MachineSpec:
        """The machine of that name; KeyError where there is none."""
        for spec in self.specs:
            if spec.name == name:
                return spec
        raise KeyError(name)


def _same_layout(ours: MachineSpec, theirs: MachineSpec) -> None:
    """Raise unless every record of one can be read as one of the other."""
    for part, what in _LAYOUT.items():
        mine, other = what(ours), what(theirs)
        if mine != other:
            first = next((pair for pair in zip(mine, other, strict=False) if pair[0] != pair[1]), (mine, other))
            raise ValueError(
                f"machine {ours.name!r} must keep its {part}, so that its records stay readable: "
                f"expected {first[0]!r}, got {first[1]!r}"
            )


_LAYOUT: Mapping[str, Callable[[MachineSpec], Any]] = {
    "states": lambda spec: [(state.name, state.kind) for state in spec.states],
    "births": lambda spec: [spec.initial, *spec.births],
    "counters": lambda spec: sorted(spec.counters),
    "decisions": lambda spec: list(spec.decisions),
    "rows by source, event and outcome": lambda spec: [(row.source, row.event, row.outcome) for row in spec.rows],
}
