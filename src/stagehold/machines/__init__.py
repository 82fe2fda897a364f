"""How rows become running machines, and how what they did is written down, proved and drawn.

Importing this package checks the seven declared machines and raises `DeclarationError` if one is wrong.
"""

from stagehold.machines.checks import check, require
from stagehold.machines.compile import (
    Arm,
    BadDetail,
    BindError,
    Machine,
    MovedByEffect,
    NotAnOutcome,
    Refused,
    Step,
    Stepper,
    bind,
    instance_class,
)
from stagehold.machines.declared import MACHINES, declaration_hash, rows_of
from stagehold.machines.findings import DeclarationError, Problem, Rule
from stagehold.machines.generate import arms
from stagehold.machines.journal import Journal, Saved, Sink
from stagehold.machines.records import (
    RECORD,
    Birth,
    BirthKey,
    Block,
    HandleKey,
    LogError,
    Replayed,
    SpanKey,
    decode,
    encode,
    replay,
)
from stagehold.machines.rules_paths import StepBound, step_bound

__all__ = [
    "MACHINES",
    "RECORD",
    "Arm",
    "BadDetail",
    "BindError",
    "Birth",
    "BirthKey",
    "Block",
    "DeclarationError",
    "HandleKey",
    "Journal",
    "LogError",
    "Machine",
    "MovedByEffect",
    "NotAnOutcome",
    "Problem",
    "Refused",
    "Replayed",
    "Rule",
    "Saved",
    "Sink",
    "SpanKey",
    "Step",
    "StepBound",
    "Stepper",
    "arms",
    "bind",
    "check",
    "declaration_hash",
    "decode",
    "encode",
    "instance_class",
    "replay",
    "require",
    "rows_of",
    "step_bound",
]

for _spec in MACHINES:
    require(_spec)
