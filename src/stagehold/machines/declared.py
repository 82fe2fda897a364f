"""The seven declared machines in their fixed order, and the hash that ties a log to them.

Owns the order (part of the audit layout) and the canonical form of a declaration. It checks and runs nothing.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from stagehold.specs.attachment import ATTACHMENT
from stagehold.specs.declare import MachineSpec, Row
from stagehold.specs.hold import HOLD
from stagehold.specs.request import REQUEST
from stagehold.specs.residency import RESIDENCY
from stagehold.specs.store import STORE
from stagehold.specs.tick import TICK
from stagehold.specs.write import WRITE

MACHINES: tuple[MachineSpec, ...] = (REQUEST, HOLD, WRITE, STORE, ATTACHMENT, RESIDENCY, TICK)
"""The seven machines; the position is the machine index of records and births."""


@lru_cache(maxsize=64)
def rows_of(spec: MachineSpec) -> tuple[Row, ...]:
    """The rows of a machine, those from `ANY` written out; the position is the row's number in a record."""
    return tuple(spec.expanded())


def canonical(spec: MachineSpec) -> dict[str, Any]:
    """All of a declaration that a log depends on; its wording (doc, why) is left out on purpose."""
    wording = {"doc", "why", "elsewhere", "one_per"}
    plain = spec.model_dump(
        exclude={"doc": True, "one_per": True, "rows": {"__all__": wording}, "states": {"__all__": wording}}
    )
    return {str(key): _plain(value) for key, value in plain.items()}


def _plain(value: Any) -> Any:
    """Enum members and enum classes by name and number, containers throughout."""
    if isinstance(value, type) and issubclass(value, IntEnum):
        return {"enum": value.__name__, "members": [_plain(member) for member in value]}
    if isinstance(value, IntEnum):
        return [value.name, int(value)]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


@lru_cache(maxsize=16)
def declaration_hash(machines: tuple[MachineSpec, ...] = MACHINES) -> bytes:
    """16 bytes that change whenever a row, a state, an outcome or their order does."""
    text = json.dumps([canonical(spec) for spec in machines], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).digest()
