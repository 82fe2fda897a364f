"""What several engines have in common that one of them could change: nothing, if they are to stand for processes.

Owns the walk through their objects. It follows attributes, containers, bound methods and what functions closed over,
and looks at no class, module or constant.
"""

from __future__ import annotations

import gc
import logging
import threading
import types
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from struct import Struct

from pydantic import BaseModel

from stagehold.cache.node import NIL, NOTHING
from stagehold.lifecycle.ranks.in_process import InProcess

SHARED_BY_ALL = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, logging.Logger, threading.Thread)
"""What a process has once, whatever runs in it."""

ATOMS = (str, bytes, int, float, complex, type(None), range, Enum, BaseModel, Struct)
FROZEN = (*ATOMS, tuple, frozenset, types.FunctionType, types.MethodType, types.CellType)


def shared_objects(engines: Sequence[object], most: int = 20) -> list[str]:
    """Objects that can change and can be reached from more than one of `engines`, each with the way to it.

    The group that they share, what is frozen, what a process has once and the node that stands for none do not count.
    """
    ways = [_reachable(engine) for engine in engines]
    found = []
    for i, one in enumerate(ways):
        for other in ways[i + 1 :]:
            found += [way for number, way in one.items() if number in other]
    return found[:most]


def _reachable(root: object) -> dict[int, str]:
    """Every changeable object behind `root` by identity, and how it was reached."""
    ways: dict[int, str] = {}
    seen: set[int] = {id(root)}
    queue: deque[tuple[object, str]] = deque([(root, type(root).__name__)])
    while queue:
        here, way = queue.popleft()
        if not _is_frozen(here):
            ways[id(here)] = way
        for name, there in _behind(here):
            if id(there) not in seen and not _is_everybody_s(there):
                seen.add(id(there))
                queue.append((there, f"{way}.{name}"))
    return ways


def _is_everybody_s(there: object) -> bool:
    assert not NOTHING, "the list of no slots has some"
    return there is NIL or there is NOTHING or isinstance(there, (*SHARED_BY_ALL, InProcess))


def _is_frozen(here: object) -> bool:
    if isinstance(here, FROZEN):
        return True
    parameters = getattr(type(here), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _behind(here: object) -> list[tuple[str, object]]:
    """What an object refers to, by name; of a function what it has closed over."""
    if isinstance(here, ATOMS):
        return []
    if isinstance(here, types.FunctionType):
        cells = here.__closure__ or ()
        return [(name, cell) for name, cell in zip(here.__code__.co_freevars, cells, strict=True)]
    if isinstance(here, Mapping):
        # Capitals and dunders are a module's own: tables that were made once, for everybody.
        names = {key: isinstance(key, str) and (key.isupper() or key.startswith("__")) for key in here}
        return [(repr(key)[:20], value) for key, value in here.items() if not names[key]]
    return [(type(there).__name__, there) for there in gc.get_referents(here)]
