"""Copies of an engine's state, and the way back.

What never changes (configuration, bound machines, tensors' homes) is shared; everything else is copied. Bytes in
attached tensors are copied, too. A store with workers cannot be copied, so a snapshot with one is refused.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.parts import Parts
from stagehold.machines import Saved

FIXED = ("config", "limits", "journal", "bytes", "steps", "_sink", "deliver")
"""Fields that a copy shares with the engine."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of one engine; opaque. It is good for that engine alone, whose fixed parts its state refers to."""

    of: Core
    state: dict[str, Any]
    journal: Saved
    tensors: tuple[Any, ...]


def take(parts: Parts, more: tuple[object, ...]) -> Snapshot:
    """Copy the state of all parts, and of the `more` objects that the engine keeps beside them."""
    core = parts.core
    for store in (*core.former, core.store):
        if store is not None and not getattr(store, "copyable", False):
            raise Misuse(f"snapshot: store {store.name!r} has workers; use the simulated store")
    tensors = core.bytes.copies()
    saved = [{k: v for k, v in vars(part).items() if k not in FIXED} for part in _changing(parts, more)]
    state = deepcopy({"parts": saved, "tick": parts.tick.state}, _shared(parts))
    return Snapshot(core, state, core.journal.save(), tensors)


def put_back(parts: Parts, more: tuple[object, ...], snapshot: Snapshot) -> None:
    """Put a copy of the snapshot's state in place of what the parts hold now."""
    core = parts.core
    if not isinstance(snapshot, Snapshot) or snapshot.of is not core:
        raise Misuse(f"restore: expected a snapshot of this engine, got {type(snapshot).__name__} of another")
    state = deepcopy(snapshot.state, _shared(parts))
    for part, saved in zip(_changing(parts, more), state["parts"], strict=True):
        vars(part).update(saved)
    parts.tick.state = state["tick"]
    core.journal.restore(snapshot.journal)
    core.bytes.overwrite(snapshot.tensors)


def _changing(parts: Parts, more: tuple[object, ...]) -> list[object]:
    return [parts.core, parts.retries, parts.holds, parts.phases, parts.visits, *more]


def _shared(parts: Parts) -> dict[int, Any]:
    """What a deep copy must not copy, by identity."""
    keep = [getattr(parts, field.name) for field in fields(parts)]
    keep += [vars(parts.core)[name] for name in FIXED if name in vars(parts.core)]
    return {id(item): item for item in (parts, *keep) if item is not None}
