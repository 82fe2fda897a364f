"""How rows become a running machine: one slotted class for the instances, one generated method per event.

Owns the step, the only writer of an instance's `state`. It checks nothing about the meaning of a declaration
(`checks` does) and keeps no instance: an instance holds its state, number, data and counters, and nothing of
the engine, so it is in no reference cycle and dies with its last user.

A step is all or nothing. Its order: decision (pure), effect (reserves first; may raise, and then nothing has
happened), state, counter, record, clock. `Stepper.source` shows what was generated, and so does a traceback.
"""

from __future__ import annotations

import linecache
import marshal
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from itertools import count
from struct import error as StructError  # noqa: N812
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from stagehold.machines.declared import rows_of
from stagehold.machines.generate import (
    Variant,
    answer_name,
    clock_name,
    decision_name,
    row_name,
    source_of,
    wanted,
)
from stagehold.machines.journal import Journal
from stagehold.machines.records import BirthKey, rest, tag
from stagehold.specs.declare import Deadline, Decision, MachineSpec
from stagehold.specs.outcomes import Taken

Step = Callable[..., IntEnum]
"""`step(m, arg=None)`: the outcome member, `Taken.TAKEN` for a row without decision, `Taken.REFUSED`."""

Method = Callable[["Stepper", "Machine", Any], IntEnum]
"""A step as a method of its stepper's class."""

Arm = Callable[[Any, Deadline], object]
"""`arm(m, deadline)`: start the clock of the state just entered. Called last, so it must not raise."""


class Refused(Exception):
    """Strict mode: the machine has no row for this event in this state."""

    def __init__(self, machine: str, state: IntEnum, event: str) -> None:
        super().__init__(f"machine {machine!r} has no row for event {event!r} in state {state!r}")
        self.machine, self.state, self.event = machine, state, event


class NotAnOutcome(TypeError):
    """A decision answered with something that is no member of its declared enum."""

    def __init__(self, machine: str, decision: Decision, answer: object) -> None:
        super().__init__(
            f"decision {decision.name!r} of machine {machine!r} (state {decision.state.name}, event "
            f"{decision.event!r}) answered {answer!r}; it must be a member of {decision.outcomes.__name__}"
        )


class MovedByEffect(RuntimeError):
    """An effect moved the very instance whose step it belongs to; that event must wait for the step's end."""

    def __init__(self, machine: str, effect: str, state: IntEnum, m: Machine) -> None:
        super().__init__(
            f"effect {effect!r} of machine {machine!r} moved its own instance {m.number} from {state.name} "
            f"to {m.state.name}; send that event after the step"
        )


class BadDetail(ValueError):
    """An effect returned something that is no detail: not an integer in [0, 2**64), and not None."""


class BindError(TypeError):
    """What was bound lacks a decision or an effect that the rows name."""


class Machine:
    """An instance: `state` (assigned by steps only), `number`, `data` (the owner's), one slot per counter.

    `tag` is the number as it stands in records.
    """

    __slots__ = ("data", "number", "state", "tag")
    state: IntEnum
    number: int
    tag: bytes
    data: Any

    if TYPE_CHECKING:

        def __getattr__(self, counter: str) -> int: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.state.name}>"


class Stepper:
    """One machine bound to one engine: a method per event, each `(m, arg=None) -> outcome`, and `birth`.

    Its class is made for it, with the steps as methods, since that is how a call finds them fastest.
    """

    __slots__ = ("_birth", "module", "source", "spec")
    _methods: ClassVar[dict[str, Method]] = {}

    def __init__(self, spec: MachineSpec, source: str, birth: Callable[..., Machine], module: dict[str, Any]) -> None:
        self.spec = spec
        self.source = source
        self.module = module
        self._birth = birth

    if TYPE_CHECKING:

        def __getattr__(self, event: str) -> Step: ...

    @property
    def steps(self) -> dict[str, Step]:
        """The step of each event, in order of declaration."""
        return {event: MethodType(method, self) for event, method in self._methods.items()}

    def birth(self, data: Any, key: BirthKey, state: IntEnum | None = None) -> Machine:
        """A new instance in the initial state or one of the declared `births`; recorded, its clock armed."""
        return self._birth(data, key, state)

    def fire(self, m: Machine, event: str, arg: Any = None) -> IntEnum:
        """The step of `event` by name; LookupError for a name that no row of this machine has."""
        method = self._methods.get(event)
        if method is None:
            known = ", ".join(self._methods)
            raise LookupError(f"machine {self.spec.name!r} has no event {event!r}; it has: {known}")
        return method(self, m, arg)

    def unbind(self) -> None:
        """Let go of everything that was bound; nothing can be stepped afterwards.

        A class lives until the collector comes, and would keep decisions and effects alive until then.
        """
        self.module.clear()
        for event in self._methods:
            if event in vars(type(self)):
                delattr(type(self), event)
        self._methods.clear()


def stepper_of(
    spec: MachineSpec, source: str, methods: dict[str, Method], birth: Callable[..., Machine], module: dict[str, Any]
) -> Stepper:
    """A stepper with these methods by event; `module` is what they name, to be let go of with the stepper.

    An event that shares its name with a method of every stepper (residency has a birth) is reached by `fire`.
    """
    named = {event: method for event, method in methods.items() if not hasattr(Stepper, event)}
    body = {**named, "_methods": methods, "__slots__": (), "__module__": __name__}
    made: type[Stepper] = type(f"{spec.name.capitalize()}Stepper", (Stepper,), body)
    return made(spec, source, birth, module)


def bind(
    spec: MachineSpec,
    *,
    decisions: object,
    effects: object,
    journal: Journal | None,
    arm: Arm | None,
    strict: bool,
) -> Stepper:
    """Bind a machine to an engine's decisions and effects, each looked up once, now.

    `journal=None` keeps no records and `arm=None` arms no clock (the tick's only limit is kept by the group).
    In strict mode a refused event raises `Refused`; otherwise it is a record and `Taken.REFUSED`.
    """
    index = journal.machine_index(spec) if journal is not None else 0
    variant = Variant(index, strict=strict, audited=journal is not None, clocks=arm is not None)
    source, code, constants = _compiled(spec, variant)
    numbers = count()
    module: dict[str, Any] = {
        **constants,
        **_bound(spec, decisions, effects),
        "records": journal.records if journal is not None else [],
        "born": journal.born if journal is not None else lambda *_: next(numbers),
        "arm": arm,
    }
    # Globals are the fastest names that a function has, and code of its own lets the interpreter learn where they are.
    exec(marshal.loads(code), module)  # noqa: S102, S302 - compiled here, from checked declarations only
    methods = {event: module[f"on_{event}"] for event in spec.events()}
    return stepper_of(spec, source, methods, module["birth"], module)


def instance_class(spec: MachineSpec) -> type[Machine]:
    """The slotted class of a machine's instances; the same class for the same name and counters."""
    return _instance_class(spec.name, tuple(spec.counters))


@lru_cache(maxsize=64)
def _instance_class(name: str, counters: tuple[str, ...]) -> type[Machine]:
    return type(name.capitalize(), (Machine,), {"__slots__": counters, "__module__": __name__})


def _bound(spec: MachineSpec, decisions: object, effects: object) -> dict[str, Callable[..., Any]]:
    """The methods by their names in the text; BindError names every one that is missing."""
    asked, done = wanted(spec)
    sought = [("decision", decisions, name) for name in asked] + [("effect", effects, name) for name in done]
    bound, missing = {}, []
    for what, owner, name in sought:
        method = getattr(owner, name, None)
        if method is None:
            missing.append(f"{what} {name}(m, arg)")
        else:
            bound[f"{'decide' if what == 'decision' else what}_{name}"] = method
    if missing:
        raise BindError(f"machine {spec.name!r} cannot be bound; missing: {', '.join(missing)}")
    return bound


@lru_cache(maxsize=128)
def _compiled(spec: MachineSpec, variant: Variant) -> tuple[str, bytes, dict[str, Any]]:
    """Source, code and constants, made once per declaration: an engine only adds its own methods."""
    source = source_of(spec, variant)
    filename = f"<stagehold machine {spec.name} {crc32(source.encode()):08x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return source, marshal.dumps(compile(source, filename, "exec")), _constants(spec, variant)


def _constants(spec: MachineSpec, variant: Variant) -> dict[str, Any]:
    """What the generated source names besides the engine's own methods."""
    constants: dict[str, Any] = {
        "MACHINE": spec.name,
        "TAKEN": Taken.TAKEN,
        "REFUSED": Taken.REFUSED,
        "Refused": Refused,
        "NotAnOutcome": NotAnOutcome,
        "MovedByEffect": MovedByEffect,
        "tagged": tag,
        "detailed": _detailed(spec, variant.index),
        "Instance": instance_class(spec),
        "INITIAL": spec.initial,
        "BIRTHS": {state: spec.state(state).deadline for state in (spec.initial, *spec.births)},
    }
    for state in spec.states:
        constants[state.name.name] = state.name
        constants[clock_name(state.name)] = state.deadline
    for decision in spec.decisions:
        constants[decision_name(decision)] = decision
        constants |= {answer_name(member): member for member in decision.outcomes}
    for number in range(len(rows_of(spec))):
        constants[row_name(number)] = rest(variant.index, number)
    return constants


def _detailed(spec: MachineSpec, index: int) -> Callable[..., bytes]:
    """The rest of a record with a detail; BadDetail names the effect whose answer is none."""

    def detailed(row: int, detail: int, flags: int = 0) -> bytes:
        try:
            return rest(index, row, flags, detail)
        except StructError as error:
            effect = rows_of(spec)[row].effect
            raise BadDetail(
                f"effect {effect!r} of machine {spec.name!r} (row {row}) returned {detail!r}; "
                "a detail is an integer in [0, 2**64), or None"
            ) from error

    return detailed
