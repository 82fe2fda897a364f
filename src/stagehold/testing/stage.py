"""What all acts of a World stand on: the engine, the guests, the marks, and the note that each act leaves.

Owns the World's own state, and the check behind every act. It performs no act itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from stagehold.cache.stores.simulated import Medium
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Plan
from stagehold.lifecycle.engine import Engine
from stagehold.machines import Block
from stagehold.specs.hold import HoldState
from stagehold.specs.write import WriteState
from stagehold.testing.checks import check_act, check_beliefs
from stagehold.testing.guests import Guest, Library, known_of
from stagehold.testing.marks import Marks
from stagehold.testing.shapes import WorldShape
from stagehold.testing.watch import Watch
from stagehold.testing.watched import Delivery, LateCopies, WatchedStore, medium_of

P = ParamSpec("P")
S = TypeVar("S", bound="Stage")
T = TypeVar("T")


def act(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Note the act for `program`, perform it, check everything."""
    name = method.__name__

    @wraps(method)
    def noted(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.acts.append((name, args, kwargs))
        self.whole = False
        result = method(self, *args, **kwargs)
        self.check()
        self.whole = True
        return result

    return noted


class Stage:
    """`engine`, the `guests` that are alive, and what they have come to (`ends`), over a `medium` of stored pages.

    Arguments that choose among several (`who`, `which`) are taken modulo their number, and an act without anybody to
    do it to does nothing: so every list of acts is a legal run.
    """

    def __init__(self, seed: int, shape: WorldShape) -> None:
        self.seed = seed
        self.shape = shape
        self.acts: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.marks = Marks()
        self.guests: list[Guest] = []
        self.open: list[tuple[Guest, Plan]] = []
        self.ends: Counter[str] = Counter()
        self.arrivals = 0
        self.library = Library(shape.config.page_size, known_of(shape.config))
        self.delivery = Delivery()
        self.lost: set[bytes] = set()  # names of pages that the World took from the store, or spoilt there
        self.launched: set[int] = set()  # numbers of the holds whose launch was looked at, of this engine
        self.whole = True  # until an act raises: what it left half done is no subject for further checks
        self._stores = 0
        self._start(medium_of(shape))

    def _start(self, medium: Medium) -> None:
        self.blocks: list[Block] = []
        self.launched.clear()
        self.watch = Watch(self.shape.config.limits)
        self.store = self._new_store(medium)
        self.engine = Engine(
            self.shape.config,
            store=None if self.shape.alone else self.store,
            sink=self.blocks.append,
            strict=True,
            deliver=self.delivery,
            **self.engine_options(),
        )

    def engine_options(self) -> dict[str, Any]:
        """What else the engine is given: copies that end late."""
        return {"copies": LateCopies(self.seed + self._stores, self.shape.copy_ticks)}

    def _new_store(self, medium: Medium) -> WatchedStore:
        self._stores += 1
        return WatchedStore(self.seed + self._stores, self.shape, medium)

    @property
    def core(self) -> Core:
        """The engine's insides: to look, and for the few acts of other traffic that have no call of their own."""
        return self.engine._parts.core  # noqa: SLF001

    @property
    def stores(self) -> list[WatchedStore]:
        """The store in use and those before it that have not finished."""
        return [self.store, *(store for store in self.core.former if isinstance(store, WatchedStore))]

    @property
    def tick_number(self) -> int:
        """The engine's clock."""
        return self.core.clock.tick

    @property
    def waiting(self) -> list[Guest]:
        """Guests that are neither running nor visited, in order of arrival."""
        visited = [guest for guest, _ in self.open]
        return [guest for guest in self.guests if not guest.running and guest not in visited]

    @property
    def running(self) -> list[Guest]:
        """Guests that were admitted."""
        return [guest for guest in self.guests if guest.running]

    def check(self) -> None:
        """Everything that must hold between acts."""
        check_act(self.core, self.guests, self.library)
        if self.shape.honest:
            check_beliefs(self.core, self.library, self.store.medium, self.lost)

    def program(self) -> str:
        """The run so far as lines of Python that repeat it."""
        return "\n".join(
            f"world.{name}({', '.join([*map(_literal, args), *(f'{k}={_literal(v)}' for k, v in kwargs.items())])})"
            for name, args, kwargs in self.acts
        )

    def _is_copying(self) -> bool:
        loading = any(h.state is HoldState.LOADING for h in self.core.holds.values())
        return loading or any(w.state is WriteState.COPYING for w in self.core.writes.values())


def _literal(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
