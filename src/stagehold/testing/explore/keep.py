"""Cheap copies of a whole small world, many thousands of them, and the way back.

A snapshot of the engine is a deep copy, in Python. Here the same state goes through the C pickler: what never changes
is kept by reference, the rest is bytes. A saved moment is good for the objects that it was taken from, in this process.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from stagehold.cache.holds import Receipt
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.node import NIL
from stagehold.lifecycle import snapshots
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.breaker import BreakerRules, LinkRules, RoundTrip
from stagehold.lifecycle.claims import ClaimRules
from stagehold.lifecycle.data import Handle, Plan
from stagehold.lifecycle.engine import Engine
from stagehold.lifecycle.ledger import Entry
from stagehold.machines import Block, Saved
from stagehold.testing.explore.chosen import Labels, Place

UNCHANGING = {
    FunctionType, BuiltinFunctionType, MethodType, type, Chain, Namespace, Handle, Plan, Entry, Receipt, Block, Labels,
    Place, AdmissionRules, ClaimRules, BreakerRules, LinkRules, RoundTrip,
}  # fmt: skip
"""Types whose objects are never changed in a search, so that all moments may share them."""


SAVED = [one.name for one in fields(Saved)]


@dataclass(frozen=True, slots=True)
class Kept:
    """One moment: bytes, and what they refer to."""

    data: bytes
    shared: list[Any]


class _Pickler(pickle.Pickler):
    """Takes `fixed` objects (by identity) and unchanging ones out of the stream."""

    def __init__(self, fixed: dict[int, Any], shared: list[Any], out: io.BytesIO) -> None:
        super().__init__(out, protocol=5)
        self._fixed = fixed
        self._shared = shared

    def reducer_override(self, obj: Any) -> Any:
        if obj is _shared_object:
            return NotImplemented
        if type(obj) in UNCHANGING or id(obj) in self._fixed or isinstance(obj, Enum):
            self._shared.append(obj)
            return _shared_object, (len(self._shared) - 1,)
        return NotImplemented


_reading: list[list[Any]] = []


def _shared_object(index: int) -> Any:
    return _reading[-1][index]


class Keeper:
    """Saves and restores `engines` and whatever `rest()` gives and `put(rest)` takes back."""

    def __init__(self, engines: list[Engine], rest: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._engines = engines
        self._rest = rest
        self._put = put
        self._fixed: dict[int, Any] = {id(NIL): NIL}
        for engine in engines:
            parts = engine._parts  # noqa: SLF001 - a search reaches inside
            keep = [parts, *(getattr(parts, one.name) for one in fields(parts))]
            keep += [vars(parts.core)[name] for name in snapshots.FIXED if name in vars(parts.core)]
            keep += vars(parts.core.steps).values()
            keep += [engine, engine.config, engine.config.limits]
            self._fixed |= {id(item): item for item in keep if item is not None}

    def save(self) -> Kept:
        """This moment."""
        shared: list[Any] = []
        out = io.BytesIO()
        _Pickler(self._fixed, shared, out).dump(([self._of(engine) for engine in self._engines], self._rest()))
        return Kept(out.getvalue(), shared)

    def restore(self, kept: Kept) -> None:
        """Go back to it. It can be used again."""
        _reading.append(kept.shared)
        try:
            states, rest = pickle.loads(kept.data)  # noqa: S301 - our own bytes
        finally:
            _reading.pop()
        for engine, state in zip(self._engines, states, strict=True):
            self._put_back(engine, state)
        self._put(rest)

    def _of(self, engine: Engine) -> Any:
        parts = engine._parts  # noqa: SLF001
        core = parts.core
        saved = [{k: v for k, v in vars(part).items() if k not in snapshots.FIXED} for part in self._changing(engine)]
        journal = core.journal.save()
        return saved, parts.tick.state, [getattr(journal, one) for one in SAVED], core.bytes.copies()

    def _put_back(self, engine: Engine, state: Any) -> None:
        parts = engine._parts  # noqa: SLF001
        saved, tick, journal, labels = state
        for part, values in zip(self._changing(engine), saved, strict=True):
            vars(part).update(values)
        parts.tick.state = tick
        parts.core.journal.restore(Saved(*journal))
        parts.core.bytes.overwrite(labels)

    def _changing(self, engine: Engine) -> list[object]:
        return snapshots._changing(engine._parts, (engine._roster,))  # noqa: SLF001
